"""The alignment picture: valid XML, a square for each pair of tokens, nothing unescaped."""

import xml.etree.ElementTree as ET

from partwise.translation.picture import alignment_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_every_weight_has_its_square() -> None:
    weights = [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]
    picture = alignment_svg(weights, ["<chat>", "&"], ["the", "猫", '"'], "a <b> & c")
    root = ET.fromstring(picture)
    squares = list(root.iter(f"{SVG}rect"))
    assert [square.get("fill-opacity") for square in squares] == [
        "0.250",
        "0.750",
        "1.000",
        "0.000",
        "0.500",
        "0.500",
    ]
    said = [title.text for square in squares for title in square.iter(f"{SVG}title")]
    assert said[1] == "the ← &: 0.75"
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert words == ["<chat>", "&", "the", "猫", '"']
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "a <b> & c"
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for square in squares:
        assert float(square.get("x", "-1")) + float(square.get("width", "0")) < width
        assert float(square.get("y", "-1")) + float(square.get("height", "0")) < height
