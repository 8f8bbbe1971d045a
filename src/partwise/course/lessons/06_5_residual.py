# %% [lesson]
# number = "06.5"
# minutes = 30
# title.zh = "残差连接"
# title.en = "Residual connections"

# %% [md zh] why
# 块里有两个不起眼的加号。拿掉它们，GPT-3 那样的 96 层就训练不动了。
#
# 一个加号为什么这么重要？常见的回答只有一句：没有它，梯度会消失。
# 这句话在某种情形下是对的，在另一种情形下是错的，而错的那种才更像今天的模型。
# 我们从一条链式法则开始，最后自己搭 96 层来看。

# %% [md en] why
# A block has two plus signs that hardly draw attention. Take them away, and 96 layers, as in GPT-3,
# can no longer be trained.
#
# Why does a plus sign matter so much? The usual answer is one sentence: without it the gradient
# vanishes. In one setting that is true, in another it is false, and the other is the one that looks
# like today's models. We begin with the chain rule and end by building 96 layers ourselves.

# %% [md zh] grad-why
# ## 加号怎样传梯度
#
# 一个子层带残差：$y = x + f(x)$。
# 记 $g_y$ 为损失对 $y$ 的梯度，$J$ 为 $f$ 的雅可比矩阵（$x$ 动一点，$f$ 动多少）。
# 加号把 $g_y$ **原样**交给两条路：一条经过 $f$，一条什么也不经过。

# %% [md en] grad-why
# ## How a plus sign passes gradients on
#
# A sublayer with its residual: $y = x + f(x)$. Let $g_y$ be the loss's gradient at $y$, and $J$ the
# Jacobian of $f$ (how much $f$ moves when $x$ does). The plus sign hands $g_y$ on, **as it is**, to
# both of its branches: one leads through $f$, the other through nothing at all.

# %% [formula] grad
# latex = 'g_x = g_y + g_y J'
# code = "grad"
# names = {g_x = "g_x", g_y = "g_y", J = "J"}
# caption.zh = "输入处的梯度：一份直达，一份经过子层"
# caption.en = "The gradient at the input: one copy comes straight, one through the sublayer"

# %% [code] grad
rng = np.random.default_rng(6)
d = 5
W = rng.normal(size=(d, d)) * 0.4
x, g_y = rng.normal(size=d), rng.normal(size=d)


def f(x):
    return np.tanh(x @ W)


J = (1 - np.tanh(x @ W)[:, None] ** 2) * W.T  # J[i, j] = d f_i / d x_j
g_x = g_y + g_y @ J

# Do not trust it, measure: move each x_j a little, and see how g_y · y moves.
step = 1e-6
measured = [
    (g_y @ ((x + e) + f(x + e) - x - f(x))) / step for e in step * np.eye(d)
]
print(g_x.round(4), "measured:", np.round(measured, 4))

# %% [md zh] deep-why
# ## 练习：一叠很深的块
#
# 现在把 $N$ 个这样的子层叠起来，从最上面往下传梯度。
# 下面的 `descend` 收到最上面的梯度和每一层的 $J$（从下往上排），却忘了那条直达的路。
# 请改好，再比较打印出来的两行。

# %% [md en] deep-why
# ## Exercise: a very deep stack
#
# Now stack $N$ of them and send the gradient from the top down. `descend` below is given the gradient
# at the top and every layer's $J$ (lowest first), but it forgets the branch that comes straight. Mend
# it, and compare the two lines that are printed.


# %% [code] deep
def descend(g, jacobians):
    for J in reversed(jacobians):
        g = g @ J
    return g


d = 16
layers = [rng.normal(size=(d, d)) * 0.5 / np.sqrt(d) for _ in range(96)]
top = rng.normal(size=d) / np.sqrt(d)
bare = top
for J in reversed(layers):
    bare = bare @ J
print(f"without the plus sign: {np.linalg.norm(bare):.1e}")
print(f"yours:                 {np.linalg.norm(descend(top, layers)):.1e}")


# %% [solution] deep
def descend(g, jacobians):
    for J in reversed(jacobians):
        g = g + g @ J
    return g


d = 16
layers = [rng.normal(size=(d, d)) * 0.5 / np.sqrt(d) for _ in range(96)]
top = rng.normal(size=d) / np.sqrt(d)
bare = top
for J in reversed(layers):
    bare = bare @ J
print(f"without the plus sign: {np.linalg.norm(bare):.1e}")
print(f"yours:                 {np.linalg.norm(descend(top, layers)):.1e}")

# %% [check] deep
_J = [np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.5, 0.0], [0.0, 0.5]])]
_g = np.array([1.0, 2.0])
_found = np.asarray(descend(_g, _J))
if np.allclose(_found, _g @ _J[1] @ _J[0]):
    expect(
        False,
        zh="现在梯度只走了经过子层的那条路。每过一层，直达的那份 g 也要留下：g + g @ J。",
        en="The gradient only took the way through the sublayers. At each layer the copy that comes "
        "straight stays as well: g + g @ J.",
    )
else:
    expect(
        np.allclose(_found, [1.5, 4.5]),
        zh=f"两层的小例子应当得到 [1.5, 4.5]，现在是 {_found}。顺序是从最上面的一层（列表的最后一个）往下。",
        en=f"A small case of two layers should give [1.5, 4.5], not {_found}. Go from the top layer (the "
        "last of the list) downwards.",
    )

# %% [md zh] deep-read
# 没有加号，96 个矩阵连乘，每个略小于 1，乘完什么也不剩。
# 有了加号，乘的是 $(I + J)$，其中的 $I$ 保证总有一份梯度一路走到底。
# 但也要看到另一面：$(I + J)$ 连乘 96 次可以变得**很大**。加号防的是消失，不防爆炸；防爆炸是[归一化](/lesson/06.6)的事。

# %% [md en] deep-read
# Without the plus sign 96 matrices are multiplied, each a little below 1, and nothing is left. With it
# the factors are $(I + J)$, and the $I$ makes sure that one copy of the gradient gets all the way down.
# But see the other side, too: 96 factors of $(I + J)$ can grow **very large**. The plus sign guards
# against vanishing, not against exploding; that is what [norms](/lesson/06.6) are for.

# %% [widget] stack
# name = "DeepStack"
# label.zh = "96 层，训练之前：拨动残差、归一化、初始化和深度，看梯度和词元相似度"
# label.en = "96 layers before training: switch residual, norm, initialisation and depth, and watch gradient and likeness of tokens"

# %% [md zh] table-why
# ## 真搭 96 层来量
#
# 下面是真正的块（注意力加前馈层），宽 32，还没有训练。六种搭法，各量三处的梯度，
# 以及最后两个不同词元有多像（余弦：1 就是方向完全相同）。

# %% [md en] table-why
# ## Build 96 layers and measure
#
# These are real blocks (attention and feed-forward), of width 32, before any training. Six ways to build
# the stack; for each, the gradient in three places, and how alike two different tokens are at the end
# (the cosine: 1 is the very same direction).

# %% [code] table
from partwise.ladder.depth import stack

print(f"{'':22} gradient at block 1       48       96   likeness")
for residual in (False, True):
    for norm in ("none", "pre", "post"):
        s = stack(residual, norm, "fan_in")
        name = f"{'x + f(x)' if residual else 'f(x)'}, {norm} norm"
        three = "".join(f"{s.gradient[i - 1]:9.0e}" for i in (1, 48, 96))
        print(f"{name:22} {three:>36}   {s.similarity[-1]:.3f}")

# %% [md zh] table-read
# 一行一行读。
#
# - `f(x), none norm`：第 1 块的梯度是 $10^{-18}$ 左右。这就是“梯度消失”，说的是**没有残差也没有归一化**。
# - `f(x), pre norm`：梯度**没有**消失，各层差不到十倍。可是相似度是 1.000：所有词元变成了同一个方向，
#   模型再也分不清谁是谁。没有残差的真正代价，在今天的模型里是这个。
# - `x + f(x), none norm`：`nan`，数值一路放大，溢出了。光有残差不够。
# - `x + f(x), pre norm`：梯度平稳，词元仍有差别。两样一起才行。
# - `x + f(x), post norm`：残差也有，归一化也有，词元却又变得一样。归一化放在哪里也有讲究，留给 [06.7](/lesson/06.7)。
#
# 为什么没有残差词元就会变得一样？因为注意力是平均，平均再平均，差别就磨平了。
# 残差每次把词元自己的那一份加回来。它把磨平变慢，并不是完全止住：pre-norm 那一行的相似度也不是 0。

# %% [md en] table-read
# Line by line.
#
# - `f(x), none norm`: the gradient at block 1 is about $10^{-18}$. That is the vanishing gradient, and it
#   belongs to **no residual and no norm**.
# - `f(x), pre norm`: the gradient does **not** vanish; the layers are within a factor of ten. But the
#   likeness is 1.000: all tokens point in one direction, and the model can no longer tell them apart.
#   In today's models this is the true price of leaving residuals out.
# - `x + f(x), none norm`: `nan`. The numbers grew until they overflowed. A residual alone will not do.
# - `x + f(x), pre norm`: gradients are steady, and tokens still differ. It takes both.
# - `x + f(x), post norm`: a residual and a norm, and yet tokens become the same. Where the norm stands
#   matters, too; that is left for [06.7](/lesson/06.7).
#
# Why do tokens become the same without residuals? Attention averages, and averages of averages wear
# all differences away. The residual adds each token's own part back every time. It slows the wearing
# down and does not stop it: under pre-norm the likeness is not 0 either.

# %% [md zh] sum-why
# ## 残差流是一个和
#
# 换一个方向看：把所有加号展开，最后的残差流就是嵌入加上每个子层写下的东西。

# %% [md en] sum-why
# ## The residual stream is a sum
#
# Look at it the other way: write all the plus signs out, and the stream at the end is the embedding plus
# what each sublayer wrote.

# %% [formula] sum
# latex = 'x_N = x_0 + \sum_{i=1}^{n} f_i'
# code = "sum"
# names = {x_N = "x_N", x_0 = "x_0", f_i = "written[i - 1]", n = "len(written)"}
# caption.zh = "n 个子层各写一次；谁也没有擦掉别人写的"
# caption.en = "Each of n sublayers writes once; none wipes out what another wrote"

# %% [code] sum
seen = observe(model, val_ids[: min(24, config.context_length)])
x_0, x_N = seen["embedding"], seen[f"block.{config.n_layers - 1}.output"]
names = [n for n in seen if n.endswith((".attention", ".feedforward"))]
written = [seen[n] for n in names]
if config.residual:
    print("the sum is the stream:", np.allclose(x_0 + sum(written), x_N, atol=1e-4))
else:
    print(lacking("residual"))
for name, value in zip(["embedding", *names], [x_0, *written], strict=True):
    along = (value * x_N).sum() / (x_N**2).sum()
    print(f"{name:22} {along:6.1%} of the final stream")

# %% [md zh] start-why
# 所以[第 06.1 课](/lesson/06.1)里中途就能读出 logits：每一站都是同一个和，只是加到了不同的地方。
#
# ## “一开始接近恒等”，是真的吗
#
# 还有一种说法：训练之初，每个块几乎什么也不做（恒等），后来才慢慢“上线”。
# 量一量：每个块加上的东西，与它所加到的残差流相比有多大？换几种初始化看。

# %% [md en] start-why
# That is why logits could be read half-way in [lesson 06.1](/lesson/06.1): every stop holds the same sum,
# added up to another place.
#
# ## "Close to the identity at first": is it true?
#
# Another common telling: at the start of training each block does almost nothing (the identity), and
# comes online later. Measure it: how large is what a block adds, beside the stream that it adds to?
# With several initialisations:

# %% [code] start
some = (1, 2, 12, 48, 96)
print(f"{'block':16}" + "".join(f"{i:8}" for i in some))
for initialisation in ("fan_in", "normal", "gpt2", "zero_projection"):
    added = stack(True, "pre", initialisation).contribution
    print(f"{initialisation:16}" + "".join(f"{added[i - 1]:8.3f}" for i in some))

# %% [md zh] start-read
# 答案是：**看初始化**。
#
# - `zero_projection` 把写回残差流的矩阵设为 0，那才是真正的恒等。
# - `gpt2` 按 $1/\sqrt{2N}$ 缩小这些矩阵，每个块只加残差流的百分之几，说“接近恒等”不算错。
# - `fan_in` 和 `normal` 却不是：第 1 块一开口就加了残差流的六成。
#
# 后两种里，深处的块加得少，也不是谁“故意”为之：残差流越走越大，同样大小的东西就显得小了。
#
# 训练起来以后呢？三种初始化各训练 40 步（8 层，约 5 秒），中途量三次：

# %% [md en] start-read
# The answer: it **depends on the initialisation**.
#
# - `zero_projection` sets to 0 the matrices that write into the stream: that is the identity indeed.
# - `gpt2` makes those matrices smaller by $1/\sqrt{2N}$; each block adds a few per cent of the stream,
#   and "close to the identity" is not wrong.
# - With `fan_in` and `normal` it is: the first block adds six tenths of the stream at once.
#
# That deep blocks add less in those two is nobody's design: the stream has grown, and beside it a thing
# of the same size looks small.
#
# And once training begins? Train 40 steps from three of them (8 layers, about 5 seconds), and measure
# three times on the way:

# %% [code] online
from dataclasses import replace

import torch

from partwise.ladder.depth import STACK, stack_config

ids = torch.from_numpy(train_ids)


def shares(net):
    """What each block adds, beside the stream that it adds to."""
    seen, found = observe(net, train_ids[:32]), []
    before = seen["embedding"]
    for i in range(net.config.n_layers):
        after = seen[f"block.{i}.output"]
        found.append(np.linalg.norm(after - before) / np.linalg.norm(before))
        before = after
    return np.array(found)


measured, some = {}, (1, 2, 4, 8)
print(f"{'block':25}" + "".join(f"{i:8}" for i in some))
for initialisation in ("fan_in", "gpt2", "zero_projection"):
    torch.manual_seed(1)
    shape = replace(STACK, vocab_size=config.vocab_size, n_layers=8)
    net = pw.GPT(stack_config(True, "pre", initialisation, shape))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for step in range(41):
        if step in (0, 10, 40):
            measured[initialisation, step] = added = shares(net)
            each = "".join(f"{added[i - 1]:8.3f}" for i in some)
            print(f"{initialisation:16} step {step:3}{each}")
        starts = torch.randint(len(ids) - 33, (8,))
        rows = torch.stack([ids[i : i + 33] for i in starts])  # (8, 33)
        logits = net(rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), rows[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %% [check] online
expect(
    measured["zero_projection", 0].max() < 1e-6
    and measured["zero_projection", 10][0] > 0.1
    and measured["gpt2", 0].max() < 0.3 < measured["gpt2", 10][0]
    and measured["fan_in", 0].min() > 0.2,
    zh="zero_projection 起初应是 0，十步之后第 1 块应已上线；若不是，请恢复这一格的步数和学习率。",
    en="From zero_projection all should be 0 at first, and block 1 online after ten steps; if not, restore "
    "this cell's steps and rate.",
)

# %% [md zh] online-read
# - 从 `gpt2` 和 `zero_projection` 出发，起初确实几乎没有声音，十步之内就“上线”了，靠近输入的块最先，也最响。
# - 从 `fan_in` 出发，从来没有安静过：一上来就在说话，训练只是重新分配了音量。
#
# 所以“起初接近恒等，后来才上线”，说的是某些初始化，不是残差连接本身。

# %% [md en] online-read
# - From `gpt2` and `zero_projection` there is hardly a sound at first, and within ten steps they have
#   come online, those near the input first and loudest.
# - From `fan_in` it was never quiet: all blocks speak from the start, and training only shares the
#   volume out anew.
#
# So "close to the identity at first, online later" is true of some initialisations. It is not a property
# of the residual connection itself.

# %% [quiz] vanish
# kind = "choice"
# question.zh = "“没有残差连接，梯度就会消失。”这句话怎样改才准确？"
# question.en = "\"Without residual connections the gradient vanishes.\" How is it put right?"
# [[options]]
# zh = "不用改，任何深的模型都这样"
# en = "It is right as it is, for any deep model"
# right = false
# feedback.zh = "看表里 `f(x), pre norm` 一行：没有残差，梯度却好好的。"
# feedback.en = "See the line `f(x), pre norm`: no residual, and the gradient is fine."
# [[options]]
# zh = "没有残差**也没有归一化**时会消失；有归一化时，坏在词元变得一模一样"
# en = "It vanishes without residuals **and norms**; with norms, what goes wrong is that tokens become the same"
# right = true
# feedback.zh = "对。两种失败都要避免，所以两样都要。"
# feedback.en = "Yes. Both failures must be avoided, hence both parts."
# [[options]]
# zh = "没有残差，梯度会爆炸"
# en = "Without residuals it explodes"
# right = false
# feedback.zh = "反了：只有残差、没有归一化时才会溢出。"
# feedback.en = "The other way round: what overflows is residuals without norms."

# %% [quiz] both
# kind = "choice"
# question.zh = "$y = a + b$，损失对 $y$ 的梯度是 $g$。损失对 $a$ 的梯度是多少？"
# question.en = "$y = a + b$, and the gradient at $y$ is $g$. What is the gradient at $a$?"
# [[options]]
# zh = "$g/2$，两条路平分"
# en = "$g/2$: the branches share it"
# right = false
# feedback.zh = "梯度不是水流，不用平分：$a$ 动多少，$y$ 就动多少，所以两边都拿到完整的 $g$。"
# feedback.en = "A gradient is no stream of water: when $a$ moves, $y$ moves just as much, so each gets the whole of $g$."
# [[options]]
# zh = "$g$，两条路各拿一整份"
# en = "$g$: each branch gets all of it"
# right = true
# feedback.zh = "对。加号是梯度的复印机。"
# feedback.en = "Yes. A plus sign copies gradients."
# [[options]]
# zh = "取决于 $a$ 和 $b$ 谁大"
# en = "It depends on which of $a$ and $b$ is larger"
# right = false
# feedback.zh = "那是乘法。加法的导数是 1，与大小无关。"
# feedback.en = "That would be a product. The derivative of a sum is 1, whatever the sizes."

# %% [quiz] product
# kind = "number"
# question.zh = "96 层，每层的 $J$ 都把梯度乘以 0.5。没有残差时，最下面的梯度是最上面的 $10^{-k}$ 倍，$k$ 约是多少（取整数）？"
# question.en = "96 layers, each of whose $J$ halves the gradient. Without residuals the gradient at the bottom is $10^{-k}$ of that at the top. What is $k$, to the nearest whole number?"
# answer = 29
# expression = "round(96 * math.log10(2))"
# feedback.right.zh = "对：$0.5^{96} \\approx 10^{-29}$。有残差时每层乘的是 1.5，于是反过来要担心变大。"
# feedback.right.en = "Yes: $0.5^{96} \\approx 10^{-29}$. With residuals each factor is 1.5, and growth is the worry instead."
# feedback.wrong.zh = "$0.5^{96}$；取常用对数，$96 \\times \\lg 2$。"
# feedback.wrong.en = "It is $0.5^{96}$; take the logarithm: $96 \\times \\log_{10} 2$."

# %% [quiz] identity
# kind = "many"
# question.zh = "一个 pre-norm 的块，怎样让它一开始恰好是恒等（$y = x$）？"
# question.en = "How can a pre-norm block be made exactly the identity ($y = x$) at the start?"
# [[options]]
# zh = "把注意力的输出投影和前馈层的第二个矩阵（连同偏置）设为 0"
# en = "Set the attention's projection and the feed-forward's second matrix to 0, biases too"
# right = true
# feedback.zh = "对。两个子层都写 0，残差流原样通过；而且这些矩阵拿得到梯度，学得动。"
# feedback.en = "Yes. Both sublayers write 0 and the stream passes; and those matrices receive gradients, so they learn."
# [[options]]
# zh = "把所有权重都设为 0"
# en = "Set all weights to 0"
# right = false
# feedback.zh = "输出确实是恒等，但相邻的两个矩阵都是 0，梯度传不到其中任何一个，谁也学不动。"
# feedback.en = "The output is the identity, but with neighbouring matrices at 0 no gradient reaches either, and nothing learns."
# [[options]]
# zh = "每个子层的输出先乘一个可学的数 $\\alpha$，初值是 0"
# en = "Multiply each sublayer's output by a learned number $\\alpha$ that starts at 0"
# right = true
# feedback.zh = "对，这就是 ReZero：$\\alpha$ 自己拿得到梯度，一动起来，子层就跟着学。"
# feedback.en = "Yes, that is ReZero: $\\alpha$ does receive a gradient, and once it has moved the sublayer learns."

# %% [reading]
# [[items]]
# title = "He et al. 2016, Deep Residual Learning for Image Recognition"
# where = "figure 1; 4.1"
# look.zh = "图 1：更深的网络连**训练**误差都更高。这不是过拟合，是优化做不到。作者写这篇文章时担心的并不是梯度消失，找到他们怎么说的。"
# look.en = "Figure 1: the deeper network is worse even in **training**. That is no overfitting but a failure to optimise. The authors do not blame vanishing gradients: find where they say so."
# [[items]]
# title = "Veit et al. 2016, Residual Networks Behave Like Ensembles of Relatively Shallow Networks"
# where = "3"
# look.zh = "把加号全部展开，得到 $2^N$ 条长短不一的路；删掉一个块，大多数路还在。"
# look.en = "Written out, the plus signs make $2^N$ paths of all lengths; delete one block, and most of them remain."
# [[items]]
# title = "Dong et al. 2021, Attention Is Not All You Need"
# where = "2"
# look.zh = "证明：没有残差和前馈层，词元以双指数的速度变得一样。"
# look.en = "A proof: without residuals and feed-forward layers tokens become the same doubly exponentially."
