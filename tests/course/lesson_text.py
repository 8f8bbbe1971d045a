"""A small lesson file with every kind of cell, for the parser's tests."""

LESSON = """# %% [lesson]
# number = "01.2"
# minutes = 5
# title = {zh = "样例", en = "A sample"}

# %% [md zh] why
# 第一句，
# 第二句。
# 带 code
# 的行。
#
# - 一
# - 二

# %% [md en] why
# First line
# second line.

# %% [formula] mean
# latex = '\\mu = \\frac{1}{d} \\sum_{j=1}^{d} x_j'
# code = "mean"
# names = {"\\\\mu" = "mu", d = "len(x)", x_j = "x[j - 1]"}
# caption = {zh = "均值", en = "The mean"}

# %% [code] mean
x = np.array([1.0, 2.0])
mu = x.mean()

# %% [code] sum
total = 0

# %% [solution] sum
total = 3

# %% [check] sum
expect(total == 3, zh="不对", en="wrong")

# %% [quiz] one
# kind = "choice"
# question = {zh = "哪个？", en = "Which?"}
# [[options]]
# zh = "甲"
# en = "a"
# right = true
# feedback = {zh = "对", en = "Yes"}
# [[options]]
# zh = "乙"
# en = "b"
# right = false
# feedback = {zh = "错", en = "No"}

# %% [quiz] two
# kind = "number"
# question = {zh = "几？", en = "How many?"}
# answer = 64
# expression = "8 * 8"
# feedback.right = {zh = "对", en = "Yes"}
# feedback.wrong = {zh = "错", en = "No"}

# %% [quiz] three
# kind = "order"
# question = {zh = "顺序？", en = "Order?"}
# [[items]]
# zh = "先"
# en = "first"
# feedback = {zh = "先", en = "first"}
# [[items]]
# zh = "后"
# en = "then"
# feedback = {zh = "后", en = "then"}

# %% [quiz] four
# kind = "code"
# question = {zh = "写", en = "Write"}
# start = "y = 1"
# check = "expect(y == 2, zh='错', en='no')"
# solution = "y = 2"
# feedback.right = {zh = "对", en = "Yes"}
# feedback.wrong = {zh = "错", en = "No"}

# %% [widget] stack
# name = "DeepStack"
# layers = 96
# label = {zh = "堆", en = "Stack"}

# %% [reading]
# [[items]]
# title = "nanoGPT"
# where = "model.py"
# look = {zh = "看", en = "Look"}
"""
