"""Files that are known not to be text by their first bytes."""

_BEGINNINGS = {
    b"%PDF-": "PDF",
    b"PK\x03\x04": "zip (docx, epub, odt, pt)",
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\xd0\xcf\x11\xe0": "Word or Excel (doc, xls)",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"\x7fELF": "ELF",
    b"SQLite format 3\x00": "SQLite",
    b"\x80\x02": "pickle",
    b"\x80\x03": "pickle",
    b"\x80\x04": "pickle",
    b"\x80\x05": "pickle",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def format_of(head: bytes) -> str | None:
    """The kind of file that begins with `head`, or None if it may be text.

    Args:
        head: its first 16 bytes or more.
    """
    return next((kind for first, kind in _BEGINNINGS.items() if head.startswith(first)), None)


def looks_like_gb18030(sample: bytes) -> bool:
    """Whether bytes that are not UTF-8 read well as Chinese in GB18030 (or GBK, or GB2312).

    Args:
        sample: a part of the text from its beginning.
    """
    try:
        text = sample.decode("gb18030")
    except UnicodeDecodeError as error:
        # The sample may end within a character.
        if len(sample) - error.start > 4:
            return False
        text = sample[: error.start].decode("gb18030")
    wide = [character for character in text if character > "\x7f"]
    chinese = sum("\u3000" <= character <= "\u9fff" or character >= "\uff00" for character in wide)
    # Accented letters of Latin-1 pair with the ASCII after them into rare characters, and are few.
    return len(wide) > len(text) / 4 and chinese > 0.9 * len(wide)
