/** The colours of a heat map, computed once as 256 steps; dark pages get their own. */

export type Scale = "diverging" | "sequential";
type Rgb = readonly [number, number, number];

const STOPS: Record<"light" | "dark", Record<Scale, readonly Rgb[]>> = {
  light: {
    diverging: [
      [16, 66, 112],
      [70, 137, 190],
      [178, 211, 232],
      [250, 250, 248],
      [244, 196, 172],
      [211, 110, 78],
      [132, 38, 22],
    ],
    sequential: [
      [250, 250, 248],
      [205, 225, 236],
      [129, 182, 212],
      [54, 122, 170],
      [20, 66, 110],
      [10, 30, 58],
    ],
  },
  dark: {
    diverging: [
      [158, 208, 246],
      [74, 142, 196],
      [34, 76, 112],
      [22, 27, 31],
      [110, 54, 38],
      [205, 108, 78],
      [252, 194, 168],
    ],
    sequential: [
      [22, 27, 31],
      [26, 58, 86],
      [38, 104, 150],
      [88, 160, 204],
      [160, 210, 238],
      [236, 247, 252],
    ],
  },
};

/** 256 colours as bytes r, g, b. */
export function palette(scale: Scale, dark: boolean): Uint8ClampedArray {
  const stops = STOPS[dark ? "dark" : "light"][scale];
  const table = new Uint8ClampedArray(256 * 3);
  for (let step = 0; step < 256; step += 1) {
    const place = (step / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const part = place - low;
    for (let channel = 0; channel < 3; channel += 1) {
      const from = stops[low]![channel]!;
      const to = stops[low + 1]![channel]!;
      table[step * 3 + channel] = Math.round(from + (to - from) * part);
    }
  }
  return table;
}

/** Which of the 256 steps a value has in [low, high]. */
export function step(value: number, low: number, high: number): number {
  if (!(high > low)) return 128;
  return Math.min(255, Math.max(0, Math.round((255 * (value - low)) / (high - low))));
}
