"""`expect`: what a hidden check says of a learner's code, in both languages.

The kernel runs the learner's cell, then `expect.begin()`, then the check's source, which calls
`expect(condition, zh=…, en=…)`, and asks `expect.report()`.
"""

import json
from dataclasses import dataclass, field


@dataclass
class Expect:
    """Collects what a check finds wrong.

    Args:
        said: what was wrong, as zh and en.
        count: how many conditions were looked at.
    """

    said: list[dict[str, str]] = field(default_factory=list)
    count: int = 0

    def begin(self) -> None:
        """Forget an earlier check."""
        self.said.clear()
        self.count = 0

    def __call__(self, condition: object, *, zh: str, en: str) -> bool:
        """Note both sentences unless `condition` holds.

        Args:
            condition: true when all is well; an array holds when all of it is true.
            zh, en: what is wrong and where to look, when it is not.

        Returns:
            Whether it holds, so that a check can go on only where that makes sense.
        """
        self.count += 1
        every = getattr(condition, "all", None)
        holds = bool(every() if callable(every) else condition)
        if not holds:
            self.said.append({"zh": zh, "en": en})
        return holds

    def stopped(self, name: str, value: str) -> None:
        """Note that the check itself could not go on.

        Args:
            name: the exception's class, such as NameError.
            value: what it says.
        """
        zh = f"检查没能做完：{name}：{value}。"
        en = f"The check could not finish: {name}: {value}."
        if name == "NameError":
            zh += "检查要用到这个名字，请不要改名或删掉它。"
            en += " The check needs that name; keep it as it was."
        else:
            zh += "多半是某个结果的形状或类型不对，先把它打印出来看看。"
            en += " Most likely a result has another shape or type; print it first."
        self.said.append({"zh": zh, "en": en})

    @property
    def passed(self) -> bool:
        """Whether something was looked at and all of it held."""
        return self.count > 0 and not self.said

    def report(self) -> str:
        """JSON: {"passed": true or false, "messages": [{"zh": …, "en": …}, …]}."""
        return json.dumps({"passed": self.passed, "messages": self.said}, ensure_ascii=False)
