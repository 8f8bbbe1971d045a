# %% [lesson]
# number = "06.7"
# minutes = 25
# title.zh = "归一化放在哪里：pre-norm 与 post-norm"
# title.en = "Where the norm stands: pre-norm and post-norm"

# %% [md zh] why
# 同样的零件，只是归一化的位置不同：放在子层**之前**，还是放在加号**之后**？
#
# 2017 年的 Transformer 放在之后（post-norm，后置），GPT-2 以来几乎都放在之前（pre-norm，前置）。
# 通常的解释是“post-norm 训练不稳定”。这一课要看清：不稳定从哪里来，什么时候**没有**不稳定。

# %% [md en] why
# The same parts, and only the norm's place differs: **before** the sublayer, or **after** the plus sign?
#
# The Transformer of 2017 has it after (post-norm); since GPT-2 nearly all have it before (pre-norm). The
# usual reason given is that post-norm "is unstable". This lesson looks at where the instability comes
# from, and when there is **none**.

# %% [formula] pre
# latex = 'x_1 = x + f(\operatorname{LayerNorm}(x))'
# code = "pre"
# names = {x_1 = "x_pre", x = "x", f = "f"}
# caption.zh = "pre-norm：主干上只有加号"
# caption.en = "pre-norm: only a plus sign on the main line"

# %% [code] pre
rng = np.random.default_rng(9)
d = 64
x = rng.normal(size=(20, d))
W = rng.normal(size=(d, d)) / np.sqrt(d)


def layer_norm(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(
        x.var(axis=-1, keepdims=True) + 1e-5
    )


def f(x):
    return x @ W  # stands for attention or feed-forward


x_pre = x + f(layer_norm(x))
print("size of the stream:", np.sqrt((x_pre**2).mean()).round(2))

# %% [formula] post
# latex = 'x_1 = \operatorname{LayerNorm}(x + f(x))'
# code = "post"
# names = {x_1 = "x_post", x = "x", f = "f"}
# caption.zh = "post-norm：主干本身一次次被归一化"
# caption.en = "post-norm: the main line itself is normed again and again"

# %% [code] post
x_post = layer_norm(x + f(x))
print("size of the stream:", np.sqrt((x_post**2).mean()).round(2))

# %% [md zh] main-line
# 差别在主干上。pre-norm 的主干从头到尾都是加号：$x_0$ 的那一份一路原样到底，梯度也一路原样回来。
# 代价是主干越走越大，所以最后要补一个归一化，输出层才读得稳。
#
# post-norm 的主干每过一个子层就被缩回单位大小。残差流不会变大，但是 $x_0$ 的那一份呢？
# 它和新加的东西**一起**被缩小。缩小多少，取决于新加的东西有多大。
#
# 设子层写下的东西大小是残差流的 $c$ 倍，方向与之无关，那么每过一层，原来那份剩下的比例是：

# %% [md en] main-line
# The difference is on the main line. Under pre-norm it is plus signs from start to end: the part of $x_0$
# goes all the way up as it is, and the gradient all the way down. The price is that the line grows, so
# one more norm is needed at the end for the output layer to read.
#
# Under post-norm the main line is brought back to unit size after each sublayer. The stream does not
# grow; but what of $x_0$? It is made smaller **together** with what was added, and by how much depends
# on how large that was.
#
# If a sublayer writes something $c$ times as large as the stream, in a direction of its own, then of
# what was there before each layer leaves this part:

# %% [formula] left
# latex = 'a = \frac{1}{\sqrt{1 + c^2}}'
# code = "left"
# names = {a = "a", c = "c"}
# caption.zh = "post-norm：过一个子层，原来的内容剩下几成"
# caption.en = "post-norm: how much of the old content one sublayer leaves"

# %% [code] left
c = np.array([1.0, 0.3, 0.02])
a = 1 / np.sqrt(1 + c**2)

wide = layer_norm(rng.normal(size=(200, 512)))
for size, expected in zip(c, a, strict=True):
    out = layer_norm(wide + size * rng.normal(size=wide.shape))
    found = (out * wide).mean()
    print(
        f"c = {size:4}: one leaves {expected:.4f} (measured {found:.4f}), 96 {expected**96:.1e}"
    )

# %% [md zh] left-read
# 这几个数就是全部的秘密。
#
# - $c = 1$：每个子层写的和主干一样大。一层剩 0.71，96 层剩 $10^{-15}$。开头的词元是谁，后面根本不知道了；
#   梯度往回走，乘的也是这些比例。
# - $c = 0.02$：每层只写一点点，96 层之后还剩 98%。post-norm 和 pre-norm 几乎没有差别。
#
# 而 $c$ 有多大，在训练之前由**初始化**决定。

# %% [md en] left-read
# These numbers are the whole secret.
#
# - $c = 1$: each sublayer writes as much as the line holds. One layer leaves 0.71, and 96 leave $10^{-15}$.
#   Who the tokens were is not known further up, and the gradient on its way down is multiplied by the
#   same ratios.
# - $c = 0.02$: each layer writes very little, and after 96 there is still 98 %. Post-norm and pre-norm
#   hardly differ.
#
# And before training, how large $c$ is follows from the **initialisation**.

# %% [code] stacks
from partwise.ladder.depth import stack

for initialisation in ("fan_in", "normal"):
    for norm in ("pre", "post"):
        s = stack(True, norm, initialisation)
        print(f"{initialisation}, {norm} norm:")
        print(f"    a block adds {s.contribution[47]:.3f} of the stream;", end=" ")
        print(f"likeness of tokens at the end {s.similarity[-1]:.3f};", end=" ")
        print(f"gradient {s.gradient[0]:.3f} … {s.gradient[-1]:.3f}")

# %% [md zh] stacks-read
# `fan_in` 让每个矩阵的输出和输入一样大，于是 $c$ 约为 1：post-norm 的 96 层把所有词元变成了同一个方向（1.000）。
# `normal` 用标准差 0.02，在宽 32 的小模型里写出来的东西很小：post-norm 的词元互不相干，梯度从头到尾一样平。
#
# 训练一下，看这是不是真的要紧。

# %% [md en] stacks-read
# `fan_in` makes every matrix's output as large as its input, so $c$ is about 1: under post-norm 96 layers
# turn all tokens into one direction (1.000). `normal` has a standard deviation of 0.02, which in a model
# of width 32 writes very little: under post-norm tokens stay apart, and the gradient is level from end to
# end.
#
# Train them, and see whether it matters.

# %% [md zh] race-why
# ## 赛跑
#
# 四个 24 层的模型，读同样的文本，学习率不变，没有 warm-up，60 步（整格约 10 秒）。
# 一次只改一样：归一化的位置，或者初始化。

# %% [md en] race-why
# ## The race
#
# Four models of 24 layers read the same text, at a constant learning rate, without warm-up, for 60 steps
# (about 10 seconds for the cell). One thing is changed at a time: the norm's place, or the
# initialisation.

# %% [code] race
from dataclasses import replace

import torch

from partwise.ladder.depth import STACK, stack_config


def race(norm, initialisation, steps=60, layers=24):
    torch.manual_seed(1)
    shape = replace(STACK, vocab_size=config.vocab_size, n_layers=layers)
    racer = pw.GPT(stack_config(True, norm, initialisation, shape))
    optimizer = torch.optim.AdamW(racer.parameters(), lr=1e-3)
    ids, losses = torch.from_numpy(train_ids), []
    for _ in range(steps):
        starts = torch.randint(len(ids) - 33, (8,))
        rows = torch.stack([ids[i : i + 33] for i in starts])  # (8, 33)
        logits = racer(rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), rows[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


curves = {
    f"{i}, {n}": race(n, i) for i in ("fan_in", "normal") for n in ("pre", "post")
}
for name, losses in curves.items():
    print(f"{name:13} last ten steps: {np.mean(losses[-10:]):.2f}")
plot(curves, xlabel="step", ylabel="training loss")

# %% [widget] race-it
# name = "Race"
# label.zh = "48 层的赛跑：pre-norm 对 post-norm，初始化可换"
# label.en = "The race with 48 layers: pre-norm against post-norm, from either initialisation"

# %% [md zh] race-read
# `fan_in` 一组里，post-norm 落后了；`normal` 一组里，两者不分上下。
# 48 层跑 120 步，看得更清楚：在 `shakespeare` 上，`fan_in` 的验证损失是 2.81 对 3.34，`normal` 是 2.84 对 2.80。
#
# 所以“post-norm 训练不了深的模型”漏掉了条件。准确的说法是：
# **post-norm 对初始化（和学习率的 warm-up）很挑剔，pre-norm 不挑。**
# 2017 年的论文靠 warm-up 过关；后来的 DeepNorm 给残差加权、把初始化改小，post-norm 叠到了 1,000 层。
# 换个位置就不必操这些心，这才是今天大家用 pre-norm 的原因。

# %% [md en] race-read
# From `fan_in`, post-norm falls behind; from `normal` there is nothing between them. With 48
# layers and 120 steps it is plainer: on `shakespeare` the validation losses are 2.81 against 3.34 from
# `fan_in`, and 2.84 against 2.80 from `normal`.
#
# So "post-norm cannot train deep models" leaves a condition out. More precisely: **post-norm is choosy
# about initialisation (and warm-up), and pre-norm is not.** The paper of 2017 got by with warm-up; later
# DeepNorm weighted the residual and shrank the initialisation, and stacked post-norm to 1,000 layers.
# Moving the norm does away with such worries, and that is why pre-norm is used today.

# %% [md zh] mend-why
# ## 练习：救一救 post-norm
#
# 上面的公式说，只要每个子层写得少，post-norm 就不会忘掉开头。
# 请写 `keep(c, layers)`：每个子层写 $c$ 倍大小时，`layers` 个**块**（每块两个子层）之后还剩几成；
# 再求出 `c_max`：96 个块之后至少要剩一半，$c$ 最大能是多少。

# %% [md en] mend-why
# ## Exercise: help post-norm
#
# By the formula above, post-norm does not forget the start as long as each sublayer writes little. Write
# `keep(c, layers)`: what is left after `layers` **blocks** (two sublayers each) when every sublayer writes
# $c$ times the stream; and find `c_max`: how large $c$ may be if half is to be left after 96 blocks.


# %% [code] mend
def keep(c, layers):
    return 1 / np.sqrt(1 + c**2) ** layers  # one sublayer a block? look again


c_max = 1.0
print(f"c = {c_max}: {keep(c_max, 96):.1e} is left")


# %% [solution] mend
def keep(c, layers):
    return (1 + c**2) ** (-layers)


c_max = np.sqrt(2 ** (1 / 96) - 1)
print(f"c = {c_max:.4f}: {keep(c_max, 96):.2f} is left")

# %% [check] mend
if expect(
    np.isclose(keep(1.0, 3), 1 / 8),
    zh=f"c = 1、3 个块应当剩 1/8，现在是 {keep(1.0, 3):.3f}。一个块有两个子层，两个 1/√(1+c²) 相乘。",
    en=f"With c = 1, 3 blocks should leave 1/8, not {keep(1.0, 3):.3f}. A block has two sublayers: two "
    "factors of 1/√(1+c²).",
):
    expect(
        np.isclose(keep(c_max, 96), 0.5, atol=0.01),
        zh=f"c_max = {c_max:.3f} 时 96 个块之后剩 {keep(c_max, 96):.2g}，题目要一半。解 (1+c²)^96 = 2。",
        en=f"With c_max = {c_max:.3f}, 96 blocks leave {keep(c_max, 96):.2g}; half is wanted. Solve "
        "(1+c²)^96 = 2.",
    )

# %% [quiz] which
# kind = "choice"
# question.zh = "`x = norm(x + attention(x))` 是哪一种？"
# question.en = "`x = norm(x + attention(x))`: which of the two is it?"
# [[options]]
# zh = "pre-norm"
# en = "pre-norm"
# right = false
# feedback.zh = "pre-norm 是 `x = x + attention(norm(x))`：归一化在括号最里面。"
# feedback.en = "Pre-norm is `x = x + attention(norm(x))`: the norm is innermost."
# [[options]]
# zh = "post-norm"
# en = "post-norm"
# right = true
# feedback.zh = "对：先加，后归一化，主干上有归一化。2017 年的论文就是这样。"
# feedback.en = "Yes: first the sum, then the norm, on the main line. That is the paper of 2017."
# [[options]]
# zh = "并联的块"
# en = "A parallel block"
# right = false
# feedback.zh = "并联的块把注意力和前馈层一起加到 $x$ 上。"
# feedback.en = "A parallel block adds attention and feed-forward to $x$ together."

# %% [quiz] final
# kind = "choice"
# question.zh = "为什么 pre-norm 的模型在最后一个块之后还要一个归一化，post-norm 的却不用？"
# question.en = "Why does a pre-norm model need one more norm after its last block, and a post-norm model not?"
# [[options]]
# zh = "pre-norm 的残差流越走越大，从没归一化过；post-norm 最后一步就是归一化"
# en = "The pre-norm stream has grown and was never normed; post-norm ends with a norm anyway"
# right = true
# feedback.zh = "对。输出层也想读到稳定的尺度。"
# feedback.en = "Yes. The output layer wants a steady scale, too."
# [[options]]
# zh = "为了多一些参数"
# en = "To have more parameters"
# right = false
# feedback.zh = "一个归一化只有 $2d$ 个参数，微不足道。"
# feedback.en = "A norm has $2d$ parameters: next to nothing."
# [[options]]
# zh = "为了让梯度消失得慢一点"
# en = "To make the gradient vanish more slowly"
# right = false
# feedback.zh = "pre-norm 的梯度本来就畅通，这个归一化管的是尺度。"
# feedback.en = "Under pre-norm the gradient has a free way already; this norm is about scale."

# %% [quiz] claim
# kind = "many"
# question.zh = "看过赛跑之后，哪些说法站得住？"
# question.en = "After the race, which of these stand?"
# [[options]]
# zh = "post-norm 从 `fan_in` 出发，深的时候学得慢"
# en = "From `fan_in`, deep post-norm learns slowly"
# right = true
# feedback.zh = "对，实测如此。"
# feedback.en = "Yes: measured."
# [[options]]
# zh = "post-norm 不论怎样初始化都训练不了深的模型"
# en = "Post-norm cannot train deep models, however they are initialised"
# right = false
# feedback.zh = "从标准差 0.02 出发，两者打平。"
# feedback.en = "From a standard deviation of 0.02 the two are level."
# [[options]]
# zh = "初始化写得小，等于让每个子层一开始少说话"
# en = "A small initialisation makes every sublayer say little at first"
# right = true
# feedback.zh = "对，$c$ 小，主干就留得住。"
# feedback.en = "Yes: with a small $c$ the main line is kept."
# [[options]]
# zh = "比较两种结构时，初始化应当固定，或者两种都试"
# en = "To compare two structures, hold the initialisation fixed, or try several"
# right = true
# feedback.zh = "对。不然比的是初始化，不是结构。"
# feedback.en = "Yes. Otherwise one compares initialisations and not structures."

# %% [quiz] half
# kind = "number"
# question.zh = "$c = 0.5$，post-norm。一个子层之后，原来的内容剩下百分之几？（取整数）"
# question.en = "$c = 0.5$, post-norm. What percentage of the old content is left after one sublayer? (To a whole number)"
# answer = 89
# tolerance = 0.6
# expression = "100 / math.sqrt(1 + 0.5**2)"
# feedback.right.zh = "对：$1/\\sqrt{1.25} \\approx 0.894$。听起来不少，10 个块之后只剩约 11%。"
# feedback.right.en = "Yes: $1/\\sqrt{1.25} \\approx 0.894$. It sounds like much, but 10 blocks leave about 11 %."
# feedback.wrong.zh = "代入 $a = 1/\\sqrt{1 + c^2}$，再乘 100。"
# feedback.wrong.en = "Put it into $a = 1/\\sqrt{1 + c^2}$, times 100."

# %% [reading]
# [[items]]
# title = "Xiong et al. 2020, On Layer Normalization in the Transformer Architecture"
# where = "3; figure 3"
# look.zh = "post-norm 靠近输出的梯度在一开始偏大，所以离不开 warm-up；pre-norm 可以不要。"
# look.en = "Under post-norm the gradients near the output are large at first, hence the warm-up; pre-norm can do without."
# [[items]]
# title = "Vaswani et al. 2017, Attention Is All You Need"
# where = "3.1; 5.3"
# look.zh = "3.1 节一行公式就是 post-norm；5.3 节的学习率公式里，前 4,000 步是 warm-up。"
# look.en = "One line of section 3.1 is post-norm; the learning rate of section 5.3 warms up for 4,000 steps."
# [[items]]
# title = "Wang et al. 2022, DeepNet: Scaling Transformers to 1,000 Layers"
# where = "abstract; 3, 4"
# look.zh = "给残差乘一个大于 1 的数，把初始化改小，post-norm 就稳了：正是 $c$ 变小。"
# look.en = "A residual weighted above 1 and a smaller initialisation make post-norm stable: that is a smaller $c$."
# [[items]]
# title = "partwise, model/block.py"
# where = "Block.forward"
# look.zh = "两种位置都在同一个函数里：找到 `before` 和 `after`。"
# look.en = "Both places stand in one function: find `before` and `after`."
