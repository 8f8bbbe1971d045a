# %% [lesson]
# number = "06.2"
# minutes = 30
# title.zh = "打开一个块：八个站"
# title.en = "Inside one block: eight stages"

# %% [md zh] why
# 流水线上叠着 $N$ 个相同的块。会看一个，就会看全部。这一课打开其中一个。
#
# 块里只有两样真正做事的零件：**注意力**让词元互相交流，**前馈层**让每个词元自己思考。
# 每样零件前面有一个归一化，后面有一个加号。算上入口和出口，一共八站：
#
# 1. **输入** $x$：从上一个块来的残差流。
# 2. **归一化 1**：把每个词元的特征调到统一尺度，再交给注意力。
# 3. **多头注意力**：每个词元从前文取来它要的东西。
# 4. **+ 残差**：取来的东西加到 $x$ 上，$x$ 本身原样保留。
# 5. **归一化 2**：残差流变了，再调一次尺度。
# 6. **前馈层**：每个词元各自处理刚取来的东西。
# 7. **+ 残差**：处理的结果再加上去。
# 8. **输出**：形状和输入一样，交给下一个块。

# %% [md en] why
# On the pipeline stand $N$ equal blocks. Whoever can read one can read them all, so this lesson opens
# one of them.
#
# Only two parts of a block do real work: **attention** lets tokens talk to each other, the
# **feed-forward layer** lets each think for itself. Before each stands a norm, behind each a plus sign.
# With entry and exit, that makes eight stages:
#
# 1. **Input** $x$: the residual stream, as it comes from the block below.
# 2. **Norm 1**: brings each token's features to one scale before attention reads them.
# 3. **Multi-head attention**: each token fetches from the past what it needs.
# 4. **+ residual**: what was fetched is added to $x$, and $x$ itself is kept.
# 5. **Norm 2**: the stream has changed, so it is scaled once more.
# 6. **Feed-forward layer**: each token works on what was just fetched.
# 7. **+ residual**: the result is added, too.
# 8. **Output**: of the input's shape, for the next block.

# %% [widget] explorer
# name = "Explorer"
# label.zh = "八个站：点击，或用方向键走；换层、换头、换文本"
# label.en = "Eight stages: click, or walk with the arrow keys; change layer, head and text"

# %% [md zh] begin-why
# ## 第 1、2 站：输入和归一化
#
# 下面用你的模型的第 0 块（从 0 数起），一站一站亲手算，每一站都和模型自己的数值对一遍。

# %% [md en] begin-why
# ## Stages 1 and 2: input and norm
#
# We take block 0 of your model (counting from 0), compute each stage by hand, and hold it against the
# model's own numbers.

# %% [formula] begin
# latex = 'u = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta'
# code = "begin"
# names = {u = "u", x = "x", "\\gamma" = "gamma", "\\beta" = "beta", "\\mu" = "mu", "\\sigma^2" = "var", "\\epsilon" = "eps"}
# caption.zh = "LayerNorm：每个词元（每一行）用自己的均值和方差；γ、β 是学来的"
# caption.en = "LayerNorm: each token (each row) uses its own mean and variance; gamma and beta are learned"

# %% [code] begin
from partwise import reference

ids = val_ids[: min(16, config.context_length)]
seen = observe(model, ids)
w = reference.part(weights, "blocks.0")
x = seen["embedding"]  # stage 1: (L, d)

gamma = w.get("norm1.weight", 1.0)
beta, eps = w.get("norm1.bias", 0.0), config.norm_eps
mu = x.mean(axis=-1, keepdims=True)
if config.norm == "rmsnorm":
    mu = 0.0  # it takes no mean away
var = ((x - mu) ** 2).mean(axis=-1, keepdims=True)
u = gamma * (x - mu) / np.sqrt(var + eps) + beta  # stage 2: (L, d)

print("spread of each token before:", x.std(axis=-1)[:6].round(3))
print(
    "and after, gamma aside:     ", ((u - beta) / gamma).std(axis=-1)[:6].round(3)
)
if "block.0.norm1" in seen:
    print("as in the model:", np.allclose(u, seen["block.0.norm1"], atol=1e-4))
else:
    print(lacking("norms"))

# %% [md zh] talk-why
# ## 第 3、4 站：注意力和加号
#
# 注意力的内部 [05](/lesson/05) 讲过，多个头怎么合起来是[下一课](/lesson/06.3)的事。
# 这里只看它在块里的位置：它读的是归一化之后的 $u$，写的却是没有归一化过的 $x$。

# %% [md en] talk-why
# ## Stages 3 and 4: attention and the plus sign
#
# [05](/lesson/05) told what attention does inside, and how several heads make one is for the
# [next lesson](/lesson/06.3). Here we look at its place: it reads $u$, after the norm, but what it
# writes is added to $x$, which never went through a norm.

# %% [formula] talk
# latex = 'x_1 = x + \operatorname{Attention}(u)'
# code = "talk"
# names = {x_1 = "x1", x = "x", u = "u", Attention = "attention"}
# caption.zh = "第 4 站：原来的 x，加上注意力取来的东西"
# caption.en = "Stage 4: x as it was, and what attention fetched"


# %% [code] talk
def attention(u):  # (L, d) -> (L, d)
    return reference.attention(config, reference.part(w, "attention"), u[None])[0]


u = reference.norm(config, reference.part(w, "norm1"), x)  # the same u, in one line
a = attention(u)  # stage 3
x1 = x + a  # stage 4
if config.residual and "block.0.residual1" in seen:
    print("as in the model:", np.allclose(x1, seen["block.0.residual1"], atol=1e-4))
if not config.residual:
    print(lacking("residual"))
print(
    f"size of x {np.sqrt((x**2).mean()):.2f}, of what is added {np.sqrt((a**2).mean()):.2f}"
)

# %% [md zh] think-why
# ## 第 5、6、7 站：再归一化，各自思考，再加
#
# 前馈层是两个矩阵夹一个弯：先从 $d$ 个特征展开到 $4d$ 个，过一个非线性函数 $\phi$，再收回 $d$ 个。
# 没有 $\phi$，两个矩阵乘起来还是一个矩阵，展开就白展开了。
# 小模型用的是最简单的 $\phi$：ReLU，负数变成 0。

# %% [md en] think-why
# ## Stages 5, 6 and 7: norm again, think, add
#
# The feed-forward layer is two matrices with a bend between: from $d$ features out to $4d$, through a
# nonlinear function $\phi$, and back to $d$. Without $\phi$ two matrices are but one matrix, and going
# out to $4d$ would be for nothing. The tiny model has the simplest $\phi$ there is, ReLU: negative
# numbers become 0.

# %% [formula] think
# latex = 'f = \phi(v W_1 + b_1)\, W_2 + b_2'
# code = "think"
# names = {f = "f", "\\phi" = "phi", v = "v", W_1 = "W_1", b_1 = "b_1", W_2 = "W_2", b_2 = "b_2"}
# caption.zh = "前馈层：每一行单独算，行与行之间没有来往"
# caption.en = "The feed-forward layer: each row by itself, with no traffic between rows"


# %% [code] think
def phi(h):
    return np.maximum(h, 0)


v = reference.norm(config, reference.part(w, "norm2"), x1)  # stage 5
own = {name: w[name] for name in w if name.startswith("feedforward.")}
if "feedforward.down.weight" not in own:  # rungs 1 to 3 of the ladder
    print(lacking("feedforward"))
    d, draw = config.d_model, np.random.default_rng(2)
    own = {
        "feedforward.up.weight": draw.normal(size=(4 * d, d)) / np.sqrt(d),
        "feedforward.down.weight": draw.normal(size=(d, 4 * d)) / np.sqrt(4 * d),
    }
W_1, W_2 = own["feedforward.up.weight"].T, own["feedforward.down.weight"].T
b_1, b_2 = (
    own.get("feedforward.up.bias", 0.0),
    own.get("feedforward.down.bias", 0.0),
)
hidden = phi(v @ W_1 + b_1)  # (L, 4d)
f = hidden @ W_2 + b_2  # stage 6: (L, d)
print(
    f"{v.shape} -> {hidden.shape} -> {f.shape}; asleep (0): {(hidden == 0).mean():.0%}"
)
if config.residual and "block.0.feedforward" in seen:
    same = np.allclose(f, seen["block.0.feedforward"], atol=1e-4)
    other = "" if same else f"(its activation is {config.feedforward})"
    print("as in the model:", same, other)

# %% [md zh] asleep
# 打印出来的“asleep”值得一看：对每个词元，$4d$ 个隐藏特征里有很大一部分是 0。
# 每个隐藏特征像一个探测器，只对某些词元亮起来。
#
# 如果你选的模型用的是 GELU、ReLU² 或 SwiGLU，上面会说不一致：弯的形状不同，位置和作用是一样的。
# `reference.feedforward` 认得所有这几种。

# %% [md en] asleep
# The share that is "asleep" is worth a look: for each token a good part of the $4d$ hidden features
# are 0. Each hidden feature is like a detector that lights up for some tokens only.
#
# If the model you chose has GELU, ReLU² or SwiGLU, the cell says that it differs: the bend has another
# shape, in the same place and for the same purpose. `reference.feedforward` knows all of them.

# %% [md zh] block-why
# ## 练习：把块装起来
#
# 零件齐了，只差装配。下面的 `block` 编得太急，漏了东西，请改好。
# 一共两行，但少一个加号、少一个归一化，都是另一个模型。

# %% [md en] block-why
# ## Exercise: put the block together
#
# All parts are there. The `block` below was written in a hurry and lacks something; mend it. It takes
# two lines, but with a plus sign or a norm missing it is another model.


# %% [code] block
def norm1(x):
    return reference.norm(config, reference.part(w, "norm1"), x)


def norm2(x):
    return reference.norm(config, reference.part(w, "norm2"), x)


def feedforward(v):
    if "feedforward.down.weight" not in w:  # the stand-in
        return phi(v @ W_1 + b_1) @ W_2 + b_2
    return reference.feedforward(config, reference.part(w, "feedforward"), v)


def block(x):
    x = x + attention(norm1(x))
    x = feedforward(norm2(x))
    return x


# %% [solution] block
def norm1(x):
    return reference.norm(config, reference.part(w, "norm1"), x)


def norm2(x):
    return reference.norm(config, reference.part(w, "norm2"), x)


def feedforward(v):
    if "feedforward.down.weight" not in w:  # the stand-in
        return phi(v @ W_1 + b_1) @ W_2 + b_2
    return reference.feedforward(config, reference.part(w, "feedforward"), v)


def block(x):
    x = x + attention(norm1(x))
    x = x + feedforward(norm2(x))
    return x


# %% [check] block
_x = seen["embedding"]
_right, _mine = _x + attention(norm1(_x)), block(_x)
_right = _right + feedforward(norm2(_right))
if expect(
    np.shape(_mine) == np.shape(_x),
    zh=f"块的输出形状是 {np.shape(_mine)}，应当和输入一样是 {np.shape(_x)}。最后别忘了 return x。",
    en=f"The block gives {np.shape(_mine)}; it should be the input's shape, {np.shape(_x)}. Return x.",
):
    _after = _x + attention(norm1(_x))
    if np.allclose(_mine, feedforward(norm2(_after)), atol=1e-5):
        expect(
            False,
            zh="第 7 站的加号不见了：现在前馈层的输出顶替了残差流，注意力写下的东西都丢了。",
            en="The plus sign of stage 7 is missing: the feed-forward output takes the stream's place, "
            "and all that attention wrote is lost.",
        )
    else:
        expect(
            np.allclose(_mine, _right, atol=1e-5),
            zh=f"和模型差了 {np.abs(_mine - _right).max():.3f}。两个子层都是：先归一化，再算，再加回来；"
            "第二个子层读的是加过注意力之后的 x。",
            en=f"It is {np.abs(_mine - _right).max():.3f} off. Both sublayers are: norm, compute, add back; "
            "and the second reads x with attention's part already in it.",
        )

# %% [md zh] growth-why
# ## 一层一层看残差流长大
#
# 每个块都往残差流里加两次。加的东西有多大？和残差流本身比呢？

# %% [md en] growth-why
# ## The residual stream grows, layer by layer
#
# Every block adds to the stream twice. How large is what it adds, beside the stream itself?


# %% [code] growth
def size(x):
    return np.sqrt((x**2).mean())


stream, sizes = (
    seen["embedding"],
    {"stream": [], "attention": [], "feed-forward": []},
)
for i in range(config.n_layers):
    added = [
        seen.get(f"block.{i}.{part}", np.zeros(1))
        for part in ("attention", "feedforward")
    ]
    for name, value in zip(sizes, [stream, *added], strict=True):
        sizes[name].append(size(value))
    print(
        f"block {i}: stream {size(stream):5.2f}   + attention {size(added[0]):5.2f}"
        f"   + feed-forward {size(added[1]):5.2f}"
    )
    stream = seen[f"block.{i}.output"]
print(f"at the end:     {size(stream):5.2f}")
plot(sizes, x=range(config.n_layers), xlabel="block", ylabel="size")

# %% [md zh] growth-read
# 残差流只加不减地往前走（加的东西可以是负的，但没有谁把它清零），所以通常越来越大。
# 这也解释了为什么每个子层前面都要归一化：不管走到第几层，子层读到的尺度总是一样的。
# 这两件事，[06.5](/lesson/06.5) 和 [06.6](/lesson/06.6) 会分别讲透。

# %% [md en] growth-read
# Things are only ever added to the stream (some of them negative, but nothing wipes it), so as a rule
# it grows. That also says why a norm stands before every sublayer: however far up, a sublayer reads
# the same scale. [06.5](/lesson/06.5) and [06.6](/lesson/06.6) go to the bottom of these two.

# %% [quiz] order
# kind = "order"
# question.zh = "一个词元走过一个块（pre-norm），依次经过什么？"
# question.en = "A token goes through a pre-norm block. What does it meet, in order?"
# [[items]]
# zh = "归一化 1"
# en = "Norm 1"
# feedback.zh = "先统一尺度，注意力才好比较。"
# feedback.en = "One scale first, so that attention can compare."
# [[items]]
# zh = "多头注意力"
# en = "Multi-head attention"
# feedback.zh = "整个块里唯一让词元互相看见的地方。"
# feedback.en = "The only place in a block where tokens see each other."
# [[items]]
# zh = "加回残差流"
# en = "Added to the stream"
# feedback.zh = "加在没有归一化过的 $x$ 上。"
# feedback.en = "To the $x$ that never went through a norm."
# [[items]]
# zh = "归一化 2"
# en = "Norm 2"
# feedback.zh = "残差流刚被改过，再统一一次。"
# feedback.en = "The stream has just been changed: once more to one scale."
# [[items]]
# zh = "前馈层"
# en = "Feed-forward layer"
# feedback.zh = "对刚听来的东西做计算。"
# feedback.en = "It computes on what was just heard."
# [[items]]
# zh = "再加回残差流"
# en = "Added to the stream again"
# feedback.zh = "这就是下一个块的输入。"
# feedback.en = "And that is the next block's input."

# %% [quiz] reads
# kind = "choice"
# question.zh = "在 pre-norm 的块里，残差流本身（那条主干）经过几次归一化？"
# question.en = "In a pre-norm block, how often does the residual stream itself, the main line, go through a norm?"
# [[options]]
# zh = "两次"
# en = "Twice"
# right = false
# feedback.zh = "两个归一化都在支路上：归一化的是子层读到的那一份，主干上只有加号。"
# feedback.en = "Both norms stand on the side branches: what is normed is the copy that a sublayer reads. On the main line there are only plus signs."
# [[options]]
# zh = "零次"
# en = "Never"
# right = true
# feedback.zh = "对。主干从嵌入一路加到最后，到输出层之前才归一化一次。"
# feedback.en = "Yes. The main line is a sum from the embedding on; it meets its one norm just before the output layer."
# [[options]]
# zh = "一次"
# en = "Once"
# right = false
# feedback.zh = "看第 4 站和第 7 站的公式：加号左边是没有归一化过的 $x$。"
# feedback.en = "See stages 4 and 7: what stands left of the plus sign is $x$ without a norm."

# %% [quiz] bend
# kind = "choice"
# question.zh = "把前馈层里的 $\\phi$ 去掉，只留两个矩阵。模型失去了什么？"
# question.en = "Take $\\phi$ out of the feed-forward layer and leave the two matrices. What is lost?"
# [[options]]
# zh = "参数少了一半"
# en = "Half of the parameters"
# right = false
# feedback.zh = "参数一个不少，只是用不上了：$W_1 W_2$ 乘起来只是一个 $d \\times d$ 的矩阵。"
# feedback.en = "None of them; they are just of no use any more, since $W_1 W_2$ is one matrix of $d \\times d$."
# [[options]]
# zh = "整个前馈层等于一个 $d \\times d$ 的矩阵，展开到 $4d$ 毫无意义"
# en = "The whole layer equals one $d \\times d$ matrix, and going out to $4d$ is pointless"
# right = true
# feedback.zh = "对。线性接线性还是线性，弯是必须的。"
# feedback.en = "Yes. Linear after linear is linear: there has to be a bend."
# [[options]]
# zh = "词元之间就不能交流了"
# en = "Tokens can no longer talk to each other"
# right = false
# feedback.zh = "前馈层从来不管交流，那是注意力的事。"
# feedback.en = "The feed-forward layer never did that: it is attention's job."

# %% [quiz] inner
# kind = "number"
# question.zh = "GPT-2 small 的 $d = 768$，前馈层展开到 $4d$。一个块里，前馈层的两个矩阵共有多少个数（不算偏置）？"
# question.en = "GPT-2 small has $d = 768$ and a feed-forward layer of $4d$. How many numbers do the two matrices of one block hold, biases aside?"
# answer = 4718592
# expression = "2 * 768 * 4 * 768"
# feedback.right.zh = "对：$2 \\cdot d \\cdot 4d = 8d^2$。记住这个 8，[06.4](/lesson/06.4) 要用。"
# feedback.right.en = "Yes: $2 \\cdot d \\cdot 4d = 8d^2$. Remember the 8: [06.4](/lesson/06.4) needs it."
# feedback.wrong.zh = "一个矩阵 $d \\times 4d$，另一个 $4d \\times d$，加起来是 $8d^2$。"
# feedback.wrong.en = "One matrix is $d \\times 4d$, the other $4d \\times d$: together $8d^2$."

# %% [reading]
# [[items]]
# title = "nanoGPT"
# where = "model.py, class Block"
# look.zh = "`forward` 只有两行，就是你刚才补全的那两行。"
# look.en = "`forward` has two lines: those that you have just completed."
# [[items]]
# title = "Vaswani et al. 2017, Attention Is All You Need"
# where = "3.1; figure 1"
# look.zh = "图 1 里每个子层后面的“Add & Norm”：先加，再归一化。和我们的顺序不同，[06.7](/lesson/06.7) 会比较两者。"
# look.en = "In figure 1 each sublayer is followed by “Add & Norm”: first the sum, then the norm. That is another order than ours; [06.7](/lesson/06.7) compares the two."
# [[items]]
# title = "Chowdhery et al. 2022, PaLM"
# where = "2"
# look.zh = "并联的块：注意力和前馈层读同一个归一化的结果，一起加回去。常有人说 PaLM 用 RMSNorm，看看论文的公式里写的到底是什么。"
# look.en = "A parallel block: attention and feed-forward read the same norm and are added together. PaLM is often said to use RMSNorm; look at what the paper's formula has."
