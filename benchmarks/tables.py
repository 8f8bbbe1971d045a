"""Put the results of benchmarks into docs/benchmarks.md, each between its two marks.

    partwise bench training sampling --out benchmarks/results/bench.json
    python benchmarks/peers.py train --compiled --bfloat16 --out benchmarks/results/peers-train.json
    python benchmarks/tables.py

The table of `benchmarks/results/NAME.json` stands between `<!-- NAME -->` and `<!-- end NAME -->`.
A mark without a result keeps what stands there.
"""

import json
import re
from pathlib import Path

from partwise.bench.measure import table
from partwise.storage import write_atomic

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Renew the page."""
    page = PAGE.read_text(encoding="utf-8")
    for path in sorted((HERE / "results").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        marks = re.compile(rf"(<!-- {path.stem} -->\n).*?(<!-- end {path.stem} -->)", re.DOTALL)
        if "figures" in result and marks.search(page):
            new = table(result)
            page = marks.sub(lambda found, new=new: f"{found[1]}\n{new}\n{found[2]}", page)
            print(path.name)
    write_atomic(PAGE, page.encode("utf-8"))


if __name__ == "__main__":
    main()
