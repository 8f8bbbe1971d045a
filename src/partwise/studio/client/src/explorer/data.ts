/** What the explorer asks of the server: one forward pass, then views of it, each asked for once. */
import { ApiError, get, getBytes, post } from "../lib/api";

export interface Token {
  id: number;
  text: string;
  /** Hexadecimal, where a token's bytes alone are no text. */
  bytes?: string;
}

export interface Inner {
  id: string;
  symbol: string;
  shape: string[];
  by_head: boolean;
}

export type Kind = "input" | "norm" | "attention" | "feedforward" | "residual" | "sum" | "output";

export interface Stage {
  id: string;
  kind: Kind;
  variant: string;
  symbol: string;
  reads: string[];
  formula: string[];
  shape: string[];
  inner: Inner[];
  /** The tensor's name behind "block.{i}." */
  tensor: string;
}

export interface Station {
  id: string;
  tensor: string;
  shape: string[];
}

export interface Trace {
  key: string;
  kept: boolean;
  text: string;
  seconds: number;
  notices: string[];
  tokens: Token[];
  surprise: (number | null)[];
  layers: number;
  sizes: Record<string, number>;
  stages: Stage[];
  pipeline: Station[];
  /** How the first block's input comes about, in LaTeX. */
  embedding: string;
  position: "learned" | "sinusoidal" | "rotary" | "alibi" | "none";
  causal: boolean;
  /** Whether the model was trained with the mask. */
  masked: boolean;
  window: number | null;
  scored: number;
  unit: string;
  bytes: number;
}

export interface Figures {
  min: number | null;
  max: number | null;
  mean: number | null;
  std: number | null;
  p99: number | null;
  not_finite: number;
}

export interface Matrix {
  values: Float32Array;
  /** Rows and columns of `values`. */
  rows: number;
  cols: number;
  /** Of the whole tensor. */
  shape: number[];
  figures: Figures;
  byToken: { mean: (number | null)[]; std: (number | null)[]; norm: (number | null)[] };
}

interface Header {
  shape: number[];
  from: [number, number];
  sent: number[];
  statistics?: Figures;
  by_token?: Matrix["byToken"];
  names?: string[];
  p99?: (number | null)[];
}

export interface Prediction {
  token: Token;
  probability: number | null;
}

export interface Lens {
  position: number;
  target: Token | null;
  layers: {
    top: Prediction[];
    target: { probability: number | null; rank: number } | null;
    entropy: number | null;
  }[];
  losses: (number | null)[] | null;
}

export interface Grid {
  first: number;
  count: number;
  layers: { token: Token; probability: number | null; right: boolean | null }[][];
}

export interface Next {
  top: { token: Token; logit: number | null }[];
  scored: number;
  target: number | null;
}

export function unpack(data: ArrayBuffer): { header: Header; values: Float32Array } {
  const length = new DataView(data).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(data, 4, length));
  return { header: JSON.parse(text) as Header, values: new Float32Array(data, 4 + length) };
}

/** Reads a text; without one the server finds a text that the model knows. */
export function readText(
  model: string,
  text: string | null,
  causal: boolean | null = null,
  signal?: AbortSignal,
): Promise<Trace> {
  return post<Trace>("/api/trace", { model, text, causal }, signal);
}

/** Views by their address; a trace's values never change. */
const kept = new Map<string, Promise<unknown>>();
const MOST = 60;

function once<T>(path: string, ask: (path: string) => Promise<T>): Promise<T> {
  const known = kept.get(path);
  if (known) {
    kept.delete(path);
    kept.set(path, known);
    return known as Promise<T>;
  }
  const asked = ask(path);
  kept.set(path, asked);
  asked.catch(() => kept.delete(path));
  const oldest = kept.keys().next();
  if (kept.size > MOST && !oldest.done) kept.delete(oldest.value);
  return asked;
}

function address(key: string, view: string, query: Record<string, string | number>): string {
  const words = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)]));
  return `/api/trace/${key}/${view}?${words}`;
}

export interface Part {
  head?: number;
  row?: number;
  rows?: number;
  column?: number;
  columns?: number;
}

export function tensor(key: string, name: string, part: Part = {}): Promise<Matrix> {
  return once(address(key, "tensor", { name, ...part, by_token: 1 }), async (path) => {
    const { header, values } = unpack(await getBytes(path));
    const [rows, cols] = header.sent.slice(-2) as [number, number];
    return {
      values,
      rows,
      cols,
      shape: header.shape,
      figures: header.statistics!,
      byToken: header.by_token!,
    };
  });
}

/** Small attention maps of all heads of a layer. */
export function maps(key: string, layer: number): Promise<{ maps: Float32Array[]; side: number }> {
  return once(address(key, "maps", { layer }), async (path) => {
    const { header, values } = unpack(await getBytes(path));
    const [heads, side] = header.sent as [number, number, number];
    const size = side * side;
    return {
      side,
      maps: Array.from({ length: heads }, (_, head) => values.subarray(head * size, (head + 1) * size)),
    };
  });
}

export interface Small {
  pictures: Float32Array[];
  rows: number;
  cols: number;
  p99: (number | null)[];
}

/** What each stage of a block gives, in small. */
export function small(key: string, layer: number): Promise<Small> {
  return once(address(key, "small", { layer }), async (path) => {
    const { header, values } = unpack(await getBytes(path));
    const [count, rows, cols] = header.sent as [number, number, number];
    return {
      rows,
      cols,
      p99: header.p99 ?? [],
      pictures: Array.from({ length: count }, (_, index) =>
        values.subarray(index * rows * cols, (index + 1) * rows * cols),
      ),
    };
  });
}

export interface Stream {
  names: string[];
  tokens: number;
  norms: Float32Array;
}

/** How long each token's vector is at every point. */
export function stream(key: string): Promise<Stream> {
  return once(address(key, "stream", {}), async (path) => {
    const { header, values } = unpack(await getBytes(path));
    return { names: header.names ?? [], tokens: header.sent[1]!, norms: values };
  });
}

export function lens(key: string, position: number): Promise<Lens> {
  return once(address(key, "lens", { position }), (path) => get<Lens>(path));
}

export function grid(key: string, first: number, count: number): Promise<Grid> {
  return once(address(key, "grid", { first, count }), (path) => get<Grid>(path));
}

export function next(key: string, position: number): Promise<Next> {
  return once(address(key, "next", { position }), (path) => get<Next>(path));
}

/** Whether the server has let a trace go, so that its text has to be read again. */
export function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.kind === "gone";
}
