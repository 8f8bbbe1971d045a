/**
 * A number as a person types it into a question: digits of any width, thousands separators, 3e-4,
 * 12.5 %, and plain arithmetic such as 2 × 768 × 4 × 768, 1/3, 12·1024² or (1 + 8) * 4.
 *
 *   sum     = product { ("+" | "-") product }
 *   product = power { ("*" | "/") power }
 *   power   = ("+" | "-") power | value [ "^" power ]
 *   value   = ( number | "(" sum ")" ) { "%" }
 */

/** Longer than any answer; keeps the depth of brackets within reason. */
const LONGEST = 200;

const NUMBER = /(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?/iy;

/** The text with one sign for each operation, and without separators and spaces. */
function plain(text: string): string {
  return text
    .replace(/[⁰¹²³⁴-⁹]+/g, "^($&)")
    .normalize("NFKC")
    .replace(/[−–—]/g, "-")
    .replace(/\*\*/g, "^")
    .replace(/[×✕·∙⋅•]/g, "*")
    .replace(/[÷∕⁄]/g, "/")
    .replace(/(\d)。(?=\d)/g, "$1.")
    .replace(/(\d)[,、'’_\s](?=\d{3}(?!\d))/g, "$1")
    .replace(/(\d)\s+(?=[\d.])/g, "$1?")
    .replace(/\s+/g, "");
}

class Reader {
  private place = 0;

  constructor(private readonly text: string) {}

  /** The value of the whole text. */
  whole(): number | null {
    const value = this.sum();
    return this.place === this.text.length ? value : null;
  }

  private took(sign: string): boolean {
    if (this.text[this.place] !== sign) return false;
    this.place += 1;
    return true;
  }

  private sum(): number {
    let value = this.product();
    for (;;) {
      if (this.took("+")) value += this.product();
      else if (this.took("-")) value -= this.product();
      else return value;
    }
  }

  private product(): number {
    let value = this.power();
    for (;;) {
      if (this.took("*")) value *= this.power();
      else if (this.took("/")) value /= this.power();
      else return value;
    }
  }

  private power(): number {
    if (this.took("-")) return -this.power();
    if (this.took("+")) return this.power();
    const base = this.value();
    return this.took("^") ? base ** this.power() : base;
  }

  private value(): number {
    let value: number;
    if (this.took("(")) {
      value = this.sum();
      if (!this.took(")")) return NaN;
    } else {
      NUMBER.lastIndex = this.place;
      const found = NUMBER.exec(this.text);
      if (!found) return NaN;
      this.place += found[0].length;
      value = Number(found[0]);
    }
    while (this.took("%")) value /= 100;
    return value;
  }
}

/** The number that was typed, or null where it is none. */
export function typedNumber(text: string): number | null {
  if (text.length > LONGEST) return null;
  const value = new Reader(plain(text)).whole();
  return value !== null && Number.isFinite(value) ? value : null;
}
