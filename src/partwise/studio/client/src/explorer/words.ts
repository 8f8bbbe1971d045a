/** What the stages of a block are called, what they do and why they are there. */
import type { Pair } from "../lib/i18n";
import type { Stage, Trace } from "./data";

export interface Told {
  name: Pair;
  what: Pair;
  why: Pair;
}

const NORMS: Record<string, { name: string; what: Pair; why: Pair }> = {
  layernorm: {
    name: "LayerNorm",
    what: {
      zh: "逐个词元处理：把这一行的 d 个数减去它们的均值，除以标准差，再逐特征乘上学到的 γ、加上 β。",
      en: "Token by token: the d numbers of a row lose their mean, are divided by their standard deviation, then scaled by a learned γ and shifted by β, feature by feature.",
    },
    why: {
      zh: "残差流会越长越大。归一化让每个子层读到的输入总是同一个尺度，深层网络才训得稳；它只看自己这一行，与同批的其他文本、与别的词元都无关。",
      en: "The residual stream grows as layers add to it. The norm hands every sublayer an input of the same scale, which keeps deep stacks trainable; it looks at one row alone, never at other tokens or other texts.",
    },
  },
  rmsnorm: {
    name: "RMSNorm",
    what: {
      zh: "逐个词元处理：这一行除以自己的均方根，再逐特征乘上学到的 γ。不减均值，也没有 β。",
      en: "Token by token: a row is divided by its root mean square, then scaled by a learned γ. No mean is taken away and there is no β.",
    },
    why: {
      zh: "与 LayerNorm 的用处相同：让子层的输入保持同一尺度。少算一个均值，效果相当，所以 LLaMA 一系用它。",
      en: "It serves the same end as LayerNorm, inputs of one scale, with one statistic less and about the same result; the LLaMA family uses it.",
    },
  },
  batchnorm: {
    name: "BatchNorm",
    what: {
      zh: "逐个特征处理：这一列减去训练时记下的滑动均值，除以滑动标准差。",
      en: "Feature by feature: a column loses the running mean kept from training and is divided by the running deviation.",
    },
    why: {
      zh: "放在这里供比较。训练时它的均值取自整批词元，于是一个词元的输出会受别的文本、甚至后面的词元影响，语言模型因此不用它。",
      en: "It is here for comparison. In training its mean is that of the whole batch, so a token's output depends on other texts and even on later tokens; language models avoid it.",
    },
  },
};

const ATTENTION: Record<string, Pair> = {
  single: { zh: "自注意力（单头）", en: "Self-attention (one head)" },
  multi_head: { zh: "多头注意力", en: "Multi-head attention" },
  grouped: { zh: "分组查询注意力", en: "Grouped-query attention" },
  multi_query: { zh: "多查询注意力", en: "Multi-query attention" },
};

const FEEDFORWARD: Record<string, string> = {
  relu: "ReLU",
  gelu: "GELU",
  gelu_tanh: "GELU",
  relu2: "ReLU²",
  swiglu: "SwiGLU",
};

/** The words for one stage, as this model has it. */
export function told(stage: Stage, trace: Trace, layer: number): Told {
  switch (stage.kind) {
    case "input":
      return {
        name: { zh: "输入", en: "Input" },
        what:
          layer === 0
            ? {
                zh: "残差流的起点：每个词元一行，每行 d 个数，由词元嵌入（加上位置）得来。",
                en: "Where the residual stream begins: a row of d numbers for each token, its embedding (plus its position).",
              }
            : {
                zh: `第 ${layer} 层交上来的残差流：每个词元一行，每行 d 个数。`,
                en: `The residual stream as layer ${layer} left it: a row of d numbers for each token.`,
              },
        why: {
          zh: "从头到尾形状都是 (T, d)，所以同样的块可以一层层叠上去：进来什么形状，出去还是什么形状。",
          en: "The shape is (T, d) from bottom to top, so equal blocks can be stacked: what goes in has the shape of what comes out.",
        },
      };
    case "norm": {
      const norm = NORMS[stage.variant] ?? NORMS["layernorm"]!;
      const number = trace.stages.filter((one) => one.kind === "norm").length > 1 ? ` ${stage.id.slice(-1)}` : "";
      const after = stage.id === "norm1" ? ["residual1", "attention"] : ["residual2", "feedforward"];
      const isPost = after.includes(stage.reads[0] ?? "");
      return {
        name: { zh: `${norm.name}${number}`, en: `${norm.name}${number}` },
        what: norm.what,
        why: isPost
          ? {
              zh: `${norm.why.zh}这个模型把它放在相加之后（post-norm）：残差流本身也被归一化。`,
              en: `${norm.why.en} This model has it after the addition (post-norm), so the stream itself is normalised.`,
            }
          : norm.why,
      };
    }
    case "attention":
      return {
        name: ATTENTION[stage.variant] ?? ATTENTION["multi_head"]!,
        what: {
          zh: "每个词元发出查询 q，与能看到的词元的键 k 作比，按 softmax 权重把它们的值 v 加权混合。各头各看各的，拼起来再由输出矩阵 Wₒ 写回残差流。",
          en: "Each token asks a query q, compares it with the keys k of the tokens it may see, and mixes their values v by softmax weights. Every head does so on its own; joined, the output matrix Wₒ writes them back for the stream.",
        },
        why: {
          zh: "整个块里只有这一步让词元之间交换信息，别处都是各算各的。多个头就是多条并行的通道，一个头看上一个字，另一个头可以去找句首。",
          en: "It is the one place in the block where tokens exchange information; everywhere else each is on its own. Several heads are parallel channels: one may look at the token before while another finds the start of the line.",
        },
      };
    case "feedforward":
      return {
        name: {
          zh: `前馈层（${FEEDFORWARD[stage.variant] ?? stage.variant}）`,
          en: `Feed-forward (${FEEDFORWARD[stage.variant] ?? stage.variant})`,
        },
        what: stage.inner.length
          ? {
              zh: "同一个小网络逐个词元地用：从 d 展宽到 f，过激活函数，再压回 d。",
              en: "The same small network for each token by itself: from d up to f, through the activation, and back down to d.",
            }
          : {
              zh: "同一个小网络逐个词元地用：乘一个矩阵，过激活函数。",
              en: "The same small network for each token by itself: one matrix and the activation.",
            },
        why: {
          zh: "注意力负责交流，前馈层负责计算：把刚收集来的信息就地加工。激活函数是块里主要的非线性；经典的块有约三分之二的参数在这里。",
          en: "Attention communicates, the feed-forward layer computes: it works on what was just gathered. Its activation is the block's main non-linearity, and about two thirds of a classic block's parameters are here.",
        },
      };
    case "residual": {
      const parallel = stage.variant === "parallel";
      const attention = stage.reads.includes("attention");
      return {
        name: { zh: "+ 残差", en: "+ Residual" },
        what: parallel
          ? {
              zh: "三样相加：块的输入、注意力的输出、前馈层的输出。",
              en: "Three things are added: the block's input, what attention gives and what the feed-forward layer gives.",
            }
          : attention
            ? {
                zh: "把注意力的输出加到进入它之前的残差流上：x + 子层(x)。",
                en: "What attention gives is added to the stream as it was before: x + sublayer(x).",
              }
            : {
                zh: "把前馈层的输出加到进入它之前的残差流上：x + 子层(x)。",
                en: "What the feed-forward layer gives is added to the stream as it was before: x + sublayer(x).",
              },
        why: {
          zh: "子层只需写出要改动的部分。相加把梯度原样送给两条支路，信号和梯度都有一条直路穿过所有层，网络才能做深。",
          en: "A sublayer only has to write the change. Addition hands the gradient to both branches undiminished, so signal and gradient have a straight way through all layers, which is what lets the stack be deep.",
        },
      };
    }
    case "sum":
      return {
        name: { zh: "+ 相加", en: "+ Sum" },
        what: {
          zh: "注意力和前馈层并排计算，输出相加。这个模型没有残差连接。",
          en: "Attention and the feed-forward layer work side by side and are added. This model has no residual connection.",
        },
        why: {
          zh: "两个子层读同一个输入，可以同时算，块就浅了一步。",
          en: "Both read the same input and can be computed at once; the block is one step shorter.",
        },
      };
    case "output":
      return {
        name: { zh: "输出", en: "Output" },
        what:
          layer + 1 < trace.layers
            ? {
                zh: `残差流离开这一层的样子，原样交给第 ${layer + 2} 层。`,
                en: `The residual stream as it leaves this layer; layer ${layer + 2} takes it as it is.`,
              }
            : {
                zh: "残差流离开最后一层的样子，接下来由最后的归一化和输出层读成各个词元的得分。",
                en: "The residual stream as it leaves the last layer; the final norm and the output layer turn it into a score for each token.",
              },
        why: {
          zh: "形状没有变，内容变了：每个词元的这一行里，多了从上文取来的信息和刚算出的结果。",
          en: "The shape is what it was and the content is not: each token's row now holds what it gathered from before and what was worked out of it.",
        },
      };
  }
}

/** What the dimensions of a shape are. */
export const DIMENSIONS: Record<string, Pair> = {
  T: { zh: "词元数", en: "tokens" },
  d: { zh: "残差流的宽度", en: "width of the residual stream" },
  H: { zh: "头数", en: "heads" },
  G: { zh: "键和值的头数", en: "heads of keys and values" },
  k: { zh: "每个头的宽度", en: "width of a head" },
  "H*k": { zh: "各头拼接后的宽度", en: "width of the joined heads" },
  f: { zh: "前馈层的内部宽度", en: "inner width of the feed-forward layer" },
  V: { zh: "词表大小", en: "size of the vocabulary" },
};

const INNER: Record<string, Pair> = {
  "attention.query": { zh: "查询 Q", en: "queries Q" },
  "attention.key": { zh: "键 K", en: "keys K" },
  "attention.value": { zh: "值 V", en: "values V" },
  "attention.weights": { zh: "注意力权重 A", en: "attention weights A" },
  "attention.joined": { zh: "各头拼接", en: "heads joined" },
  "feedforward.hidden": { zh: "激活后的隐藏层", en: "hidden layer, activated" },
};

export function innerName(id: string): Pair {
  return INNER[id] ?? { zh: id, en: id };
}

/** A dimension's name as it is shown. */
export function dimension(name: string): string {
  return { k: "dₖ", "H*k": "H·dₖ", f: "d_ff" }[name] ?? name;
}

export function symbols(shape: readonly string[]): string {
  return `(${shape.map(dimension).join(", ")})`;
}

export function numbers(shape: readonly string[], sizes: Record<string, number>): string {
  return `(${shape.map((name) => (sizes[name] ?? 0).toLocaleString("en-US")).join(", ")})`;
}
