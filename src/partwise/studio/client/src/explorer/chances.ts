/** softmax(logits / temperature) over the k likeliest, as `sampling/choose.py` draws. */

export interface Chances {
  /** The probability of a token with this logit. */
  of: (logit: number) => number;
  /** Of the whole distribution, in nats. */
  entropy: number;
}

/** A temperature below this takes the likeliest token. */
const COLDEST = 1e-6;

export function chances(logits: Float32Array, temperature: number, topK: number): Chances {
  let top = -Infinity;
  for (const logit of logits) if (logit > top) top = logit;
  if (temperature < COLDEST) return { of: (logit) => (logit >= top ? 1 : 0), entropy: 0 };
  let lowest = -Infinity;
  if (topK > 0 && topK < logits.length) {
    lowest = Float32Array.from(logits).sort()[logits.length - topK]!;
  }
  let sum = 0;
  let weighted = 0;
  for (const logit of logits) {
    if (logit < lowest || !Number.isFinite(logit)) continue;
    const scaled = (logit - top) / temperature;
    const weight = Math.exp(scaled);
    sum += weight;
    weighted += weight * scaled;
  }
  return {
    of: (logit) => (logit < lowest ? 0 : Math.exp((logit - top) / temperature) / sum),
    entropy: sum > 0 ? Math.log(sum) - weighted / sum : NaN,
  };
}
