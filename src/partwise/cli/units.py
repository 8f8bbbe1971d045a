"""Numbers with their units, short enough for a table."""

from partwise.messages import message


def count(number: float) -> str:
    """`124.4 M`: three or four digits and a power of a thousand."""
    return _scaled(number, 1000, ("", "K", "M", "B", "T"))


def data_size(number: float) -> str:
    """Bytes as `1.5 GB`, in powers of a thousand as makers of memory count them."""
    return _scaled(number, 1000, ("B", "KB", "MB", "GB", "TB", "PB"))


def operations(number: float) -> str:
    """Floating-point operations as `248.1 MFLOP`."""
    return _scaled(number, 1000, ("FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def share(number: float) -> str:
    """`12.3 %`."""
    return f"{100 * number:.1f} %"


def duration(hours: float) -> str:
    """Hours as seconds, minutes, hours, days or years, whichever reads best."""
    seconds = 3600 * hours
    if seconds < 120:
        return message("{number:.0f} seconds", number=seconds)
    if hours < 2:
        return message("{number:.0f} minutes", number=60 * hours)
    if hours < 48:
        return message("{number:.1f} hours", number=hours)
    if hours < 2 * 365 * 24:
        return message("{number:,.1f} days", number=hours / 24)
    return message("{number:,.1f} years", number=hours / 24 / 365)


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as `1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    power = 0
    while abs(number) >= base and power < len(units) - 1:
        number /= base
        power += 1
    digits = f"{number:,.0f}" if power == 0 else f"{number:,.1f}"
    return f"{digits} {units[power]}".rstrip()
