# %% [lesson]
# number = "06.8"
# minutes = 35
# title.zh = "一个完整的块，一个完整的 GPT"
# title.en = "A whole block, a whole GPT"

# %% [md zh] why
# 零件都见过了。把它们装起来，要多少行？
#
# 这一课只用 NumPy 写出整个 GPT，把你自己模型的权重装进去，然后问一个严格的问题：
# **它给出的 logits 和 torch 的模型一样吗？**
# 一样，是指只差浮点舍入，约 $10^{-5}$，而不是“看起来差不多”。
# 能通过这一关，就说明模型里再没有你没见过的东西。

# %% [md en] why
# You have seen every part. How many lines does it take to put them together?
#
# This lesson writes the whole GPT in plain NumPy, loads your own model's weights into it, and asks
# a strict question: **does it give the same logits as the torch model?** The same means equal but
# for rounding, about $10^{-5}$, and not "looks similar". If it passes, there is nothing left in
# the model that you have not met.

# %% [code] inventory
for name, w in weights.items():
    if not name.startswith("blocks.") or name.startswith("blocks.0."):
        print(f"{name:36} {w.shape}")
print(
    f"blocks.0 … blocks.{config.n_layers - 1}; {sum(w.size for w in weights.values()):,} numbers"
)

if not config.residual or config.feedforward == "none":
    print(lacking("block"))

# %% [md zh] inventory-read
# 这张单子就是全部家当：没有程序，只有名字和数组。
#
# - 形状是（输出，输入），所以线性层写作 $y = xW^\top + b$。
# - `attention.qkv` 一个矩阵装了三样：先是所有查询头的行，再是键，再是值。
# - 单子里没有掩码：它不是学来的，现算就行。

# %% [md en] inventory-read
# This list is all there is: no program, just names and arrays.
#
# - Shapes are (outputs, inputs), so a linear layer reads $y = xW^\top + b$.
# - `attention.qkv` holds three things in one matrix: the rows of all query heads, then keys, then
#   values.
# - There is no mask in the list: nobody learned it, it is made on the spot.

# %% [formula] linear
# latex = 'y = x W^\top + b'
# code = "linear"
# names = {y = "y", x = "x", W = "W", b = "b"}
# caption.zh = "线性层；W 的每一行算出一个输出特征"
# caption.en = "A linear layer; each row of W makes one output feature"


# %% [code] linear
def linear(x, name):
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


qkv = "blocks.0.attention.qkv"
W, b = weights[f"{qkv}.weight"], weights.get(f"{qkv}.bias", np.float32(0))
x = np.random.default_rng(1).normal(size=(5, config.d_model))
y = linear(x, qkv)
print(x.shape, "->", y.shape)

# %% [md zh] norms
# ## 归一化，四行
#
# 归一化也只要几行。注意 LayerNorm 就是“先减平均，再做 RMSNorm”：
# 减去平均以后，平方的平均就是方差。所以一个函数管两种。

# %% [md en] norms
# ## Norms, in four lines
#
# Normalisation takes a few lines as well. Note that LayerNorm is "take away the mean, then
# RMSNorm": once the mean is gone, the mean square *is* the variance. So one function serves both.


# %% [code] norm
def rms(x, gamma):
    return gamma * x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps)


def norm(x, name):
    if f"{name}.weight" not in weights:
        return x
    if config.norm == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    return rms(x, weights[f"{name}.weight"]) + weights.get(f"{name}.bias", 0)


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ids = tokenizer.encode(text[:400]).astype(int)[: min(config.context_length, 48)]
x = weights["token_embedding.weight"][ids]
print("std of a token's features:", x.std(-1).mean().round(3), end=" -> ")
print(norm(x, "blocks.0.norm1").std(-1).mean().round(3))

# %% [md zh] heads
# ## 先写一个头
#
# 注意力分两步写。先在最外层写**一个头**，好看清每个数组；$M$ 是掩码，未来的格子是 $-\infty$。

# %% [md en] heads
# ## One head first
#
# Attention comes in two steps. First **one head**, in the open, so that every array can be looked
# at; $M$ is the mask, with $-\infty$ where the future lies.

# %% [formula] one-head
# latex = 'O = \mathrm{softmax}(\frac{Q K^\top}{\sqrt{d_k}} + M) V'
# code = "one-head"
# names = {O = "O", Q = "Q", K = "K", d_k = "d_k", M = "M", V = "V"}
# caption.zh = "一个头（Vaswani 等，2017，3.2.1 节），加上因果掩码"
# caption.en = "One head (Vaswani et al. 2017, section 3.2.1), with the causal mask"

# %% [code] one-head
T, d_k = len(ids), config.head_size
rows = linear(norm(x, "blocks.0.norm1"), "blocks.0.attention.qkv")
rows = rows.reshape(T, -1, d_k)
Q, K, V = (
    rows[:, 0],
    rows[:, config.n_heads],
    rows[:, config.n_heads + config.key_value_heads],
)
M = np.where(np.triu(np.ones((T, T), bool), 1), -np.inf, 0)
O = softmax(Q @ K.T / np.sqrt(d_k) + M) @ V
print(Q.shape, K.shape, V.shape, "->", O.shape)

# %% [md zh] all-heads
# ## 再写所有的头
#
# 再写成函数，所有头一起算：把头这一维换到最前面，NumPy 的 `@` 会逐头相乘。
# 中间的几个 `if` 是给有旋转位置、QK 归一化、共用键值头的模型准备的（例如 `partwise train` 的默认模型）；
# 经典的块用不到它们。

# %% [md en] all-heads
# ## Then all heads
#
# Then as a function over all heads at once: with the axis of heads in front, NumPy's `@` multiplies
# head by head. The `if`s in the middle serve models with rotary positions, QK norm or shared
# key-value heads, such as the default of `partwise train`; the classic block needs none of them.


# %% [code] attention
def rotate(x):
    half = config.head_size // 2
    angle = np.arange(x.shape[1])[:, None] * config.rope_base ** (
        -np.arange(half) / half
    )
    a, b = x[..., :half], x[..., half:]
    turned = [
        a * np.cos(angle) - b * np.sin(angle),
        b * np.cos(angle) + a * np.sin(angle),
    ]
    return np.concatenate(turned, -1)


def attention(x, name):
    T, h, g = len(x), config.n_heads, config.key_value_heads
    rows = linear(x, f"{name}.qkv").reshape(T, -1, config.head_size).swapaxes(0, 1)
    q, k, v = np.split(rows, [h, h + g])  # (h, T, d_k), (g, T, d_k), (g, T, d_k)
    if config.qk_norm:
        q = rms(q, weights[f"{name}.query_norm.weight"])
        k = rms(k, weights[f"{name}.key_norm.weight"])
    if config.position == "rotary":
        q, k = rotate(q), rotate(k)
    k, v = np.repeat(k, h // g, axis=0), np.repeat(v, h // g, axis=0)
    future = np.triu(np.ones((T, T), bool), 1)
    scores = np.where(
        future, -np.inf, q @ k.swapaxes(1, 2) / np.sqrt(config.head_size)
    )
    heads = softmax(scores) @ v  # (h, T, d_k)
    joined = heads.swapaxes(0, 1).reshape(T, -1)  # (T, h * d_k)
    return (
        linear(joined, f"{name}.projection") if config.output_projection else joined
    )


out = attention(norm(x, "blocks.0.norm1"), "blocks.0.attention")
print(x.shape, "->", out.shape)

# %% [check] attention
expect(
    out.shape == x.shape,
    zh=f"注意力的输出应与输入同形 {x.shape}，现在是 {out.shape}：各头要并排拼回 d。",
    en=f"Attention should return the shape it got, {x.shape}, and returns {out.shape}: join the"
    " heads side by side, back to width d.",
)

# %% [md zh] ffn
# ## 前馈层
#
# 前馈层：升上去，过激活，降回来。激活有几种，查表即可。

# %% [md en] ffn
# ## The feed-forward layer
#
# The feed-forward layer: up, activation, down. There are a few activations; look yours up.


# %% [code] feedforward
def gelu(z):
    return z * (1 + np.vectorize(math.erf)(z / math.sqrt(2))) / 2


activations = {
    "relu": lambda z: np.maximum(z, 0),
    "relu2": lambda z: np.maximum(z, 0) ** 2,
    "gelu": gelu,
    "gelu_tanh": lambda z: (
        z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) / 2
    ),
}


def feedforward(x, name):
    if config.feedforward == "none":
        return np.zeros_like(x)
    z = linear(x, f"{name}.up")
    if config.feedforward == "swiglu":
        gate = linear(x, f"{name}.gate")
        z = gate / (1 + np.exp(-gate)) * z
    else:
        z = activations[config.feedforward](z)
    return linear(z, f"{name}.down") if config.feedforward_output else z


print(
    config.feedforward, x.shape, "->", feedforward(x, "blocks.0.feedforward").shape
)

# %% [md zh] block
# ## 一个完整的块
#
# **练习**：写完整的块。记 $A$ 为“归一化 1，再注意力”，$F$ 为“归一化 2，再前馈层”，
# pre-norm 的块就是下面这个式子。注意 $F$ 读的不是 $x$，而是已经加上注意力的残差流。
#
# 代码里只写了前一半，还漏了一样东西。检查会拿你的结果与 torch 的第 0 块逐个数比较。

# %% [md en] block
# ## A whole block
#
# **Exercise**: write the whole block. With $A$ for "norm 1, then attention" and $F$ for "norm 2,
# then feed-forward", a pre-norm block is the formula below. Note that $F$ does not read $x$, but
# the stream to which attention has been added already.
#
# The code has the first half, and even that lacks something. The check compares your result with
# torch's block 0, number by number.

# %% [formula] whole-block
# latex = 'y = x + A(x) + F(x + A(x))'
# code = "whole-block"
# names = {y = "block(x, 0)", x = "x", A = "lambda x: attention(norm(x, 'blocks.0.norm1'), 'blocks.0.attention')", F = "lambda x: feedforward(norm(x, 'blocks.0.norm2'), 'blocks.0.feedforward')"}
# caption.zh = "pre-norm 的块"
# caption.en = "The pre-norm block"


# %% [code] whole-block
def block(x, layer):
    name = f"blocks.{layer}"
    return attention(norm(x, f"{name}.norm1"), f"{name}.attention")


# %% [solution] whole-block
def block(x, layer):
    name = f"blocks.{layer}"
    x = x + attention(norm(x, f"{name}.norm1"), f"{name}.attention")
    return x + feedforward(norm(x, f"{name}.norm2"), f"{name}.feedforward")


# %% [check] whole-block
seen = observe(model, ids)
got = block(seen["embedding"], 0)
whole = seen["embedding"] + attention(
    norm(seen["embedding"], "blocks.0.norm1"), "blocks.0.attention"
)
half = whole
whole = whole + feedforward(norm(whole, "blocks.0.norm2"), "blocks.0.feedforward")
if config.residual and not config.parallel and config.norm_placement == "pre":
    half, whole = seen.get("block.0.residual1", half), seen["block.0.output"]


def near(a, b):
    return a.shape == b.shape and np.allclose(
        a, b, atol=1e-3 * max(1, abs(b).max())
    )


if expect(
    got is not None and got.shape == seen["embedding"].shape,
    zh="块的输出应与输入同形：别忘了 return。",
    en="A block returns the shape that it got; do not forget to return it.",
):
    expect(
        not near(got, seen["block.0.attention"]) or near(got, whole),
        zh="这是注意力的输出本身：缺了残差 x + …，也缺了前馈那一半。",
        en="This is attention's output alone: the residual x + … is missing, and so is the"
        " feed-forward half.",
    )
    expect(
        not near(got, half) or near(got, whole),
        zh="前一半对了。再加上 x + FFN(Norm2(x))。",
        en="The first half is right. Now add x + FFN(Norm2(x)).",
    )
    expect(
        near(got, whole),
        zh="与 torch 的第 0 块不同：看看每个子层用的是不是自己的归一化（norm1、norm2），残差加的是不是当时的 x。",
        en="This differs from torch's block 0: does each sublayer use its own norm (norm1, norm2),"
        " and does each residual add the x of that moment?",
    )

# %% [md zh] stack
# ## 一个完整的 GPT
#
# 块的输入和输出同形，都是 $(T, d)$。所以块可以一个接一个地叠，也可以跳过、重复、调换，程序都不会报错。
# 整个 GPT 于是只剩几行：

# %% [md en] stack
# ## A whole GPT
#
# A block's input and output have the same shape, $(T, d)$. So blocks can be stacked, and just as
# well skipped, repeated or swapped: nothing breaks. The whole GPT is now a few lines:


# %% [code] gpt
def gpt(ids, order=None):
    x = weights["token_embedding.weight"][ids]
    if "position_embedding.weight" in weights:
        x = x + weights["position_embedding.weight"][: len(ids)]
    for layer in range(config.n_layers) if order is None else order:
        x = block(x, layer)
    x = norm(x, "final_norm")
    return linear(x, "token_embedding" if config.tie_embeddings else "head")


mine = gpt(ids)
theirs = observe(model, ids)["logits"]
print(mine.shape, f"largest difference {abs(mine - theirs).max():.1e}")

# %% [check] gpt
classic = config.residual and config.feedforward != "none"
expect(
    mine.shape == theirs.shape
    and (
        not classic or abs(mine - theirs).max() < 1e-3 * max(1, abs(theirs).max())
    ),
    zh="logits 与 torch 的不同。先让上面“块”的练习通过；若已通过，"
    "说明你的模型有本课没写的零件（并行块、ALiBi、滑动窗口……），partwise/reference.py 里都有。",
    en="The logits differ from torch's. Pass the exercise of the block first; if it passes, your"
    " model has a part that this lesson leaves out (parallel blocks, ALiBi, a window …), which"
    " partwise/reference.py has.",
)

# %% [md zh] matched
# ## 一样，然后呢
#
# 差只有舍入那么大。没有训练、没有 torch、没有 GPU，几十行 NumPy 就是你的模型。
#
# 少了什么？只少了训练才用的（dropout、梯度）和只为了快的（KV 缓存、融合的注意力）。
#
# 现在试试“同形”的另一面：程序不报错，不等于损失不变。

# %% [md en] matched
# ## The same: what now?
#
# The difference is rounding and no more. No training, no torch, no GPU: some dozens of lines of
# NumPy are your model.
#
# What is left out serves training (dropout, gradients) or speed (KV cache, fused attention).
#
# Now the other side of equal shapes: that nothing breaks does not mean that nothing is lost.


# %% [code] orders
def loss(order):
    found = []
    for row in windows(
        val_ids, min(48, config.context_length), 12 if size < 2e7 else 1
    ):
        p = softmax(gpt(row[:-1], order))
        found.append(-np.log(p[np.arange(len(row) - 1), row[1:]]).mean())
    return np.mean(found)


N, size = config.n_layers, sum(w.size for w in weights.values())
orders = {
    "as trained": list(range(N)),
    "first block skipped": list(range(1, N)),
    "last block skipped": list(range(N - 1)),
    "last block twice": [*range(N), N - 1],
    "reversed": list(range(N))[::-1],
}
for name, order in orders.items():
    print(f"{name:20} {order}  loss {loss(order):.2f}")
print(f"guessing: ln V = {np.log(config.vocab_size):.2f}")

# %% [md zh] let-write
# ## 跳过、重复、写作
#
# 在随课的小模型上：跳过或重复**最后**一块，损失只多零点一上下；跳过**第一**块却多出一个多 nat；
# 倒过来则与瞎猜（$\ln V$）差不多，甚至更差。
# 残差流让每一块都只是“再加一点”，少了后面的一点，大体还在；但后面的块是看着前面的输出学会的，次序并非无关。
#
# 最后让这个 NumPy 模型写点东西：反复预测、抽一个、接上去。

# %% [md en] let-write
# ## Skipped, repeated, writing
#
# In the course's small model, skipping or repeating the **last** block costs about a tenth of a nat;
# skipping the **first** costs more than one; and the reverse order is about as bad as guessing
# ($\ln V$), or worse. In a residual stream every block only adds something, so with a late addition
# missing most is still there. But later blocks learned from what earlier ones put out: order does
# matter.
#
# Last, let the NumPy model write: predict, draw one, append, again.

# %% [code] write
rng = np.random.default_rng(1)
written = list(ids[:16])
for _ in range(80 if size < 2e7 else 5):
    p = softmax(gpt(np.array(written[-config.context_length :]))[-1] / 0.8)
    written.append(rng.choice(len(p), p=p / p.sum()))
print(tokenizer.decode(written))

# %% [md zh] guide
# ## 读 nanoGPT 的两个文件
#
# 你已经写过一遍，读别人的就只是找对应：
#
# | 这里 | nanoGPT 的 `model.py` | 留意 |
# |---|---|---|
# | `attention.qkv` | `c_attn` | 三个矩阵也是合成一个，再切开 |
# | `attention.projection` | 注意力里的 `c_proj` | 初始化另有缩放：除以 $\sqrt{2N}$ |
# | `feedforward.up`、`down` | `c_fc`、`c_proj` | 激活是 GELU |
# | `norm1`、`norm2`、`final_norm` | `ln_1`、`ln_2`、`ln_f` | 都在子层之前：pre-norm |
# | `token_embedding`、`position_embedding` | `wte`、`wpe` | 输出层与 `wte` 是同一个张量 |
#
# 读 `model.py` 时问：因果掩码在哪里（两条路各有一处）？生成时为什么只算最后一个位置的 logits？
# 载入 GPT-2 权重时为什么有几个矩阵要转置？权重衰减给了哪些参数？
#
# 读 `train.py` 时问：一个批次从哪里来？学习率怎样先升后降？梯度累积时损失除以了什么？
# 评估用的是整个验证集，还是随机的几批？这些是 [07](/lesson/07) 的题目。

# %% [md en] guide
# ## Reading nanoGPT's two files
#
# You have written it once; reading is finding what matches:
#
# | here | `model.py` of nanoGPT | note |
# |---|---|---|
# | `attention.qkv` | `c_attn` | three matrices in one there too, then split |
# | `attention.projection` | `c_proj` of attention | starts smaller: divided by $\sqrt{2N}$ |
# | `feedforward.up`, `down` | `c_fc`, `c_proj` | the activation is GELU |
# | `norm1`, `norm2`, `final_norm` | `ln_1`, `ln_2`, `ln_f` | before each sublayer: pre-norm |
# | `token_embedding`, `position_embedding` | `wte`, `wpe` | the output layer is the same tensor as `wte` |
#
# Questions for `model.py`: where is the causal mask (it is on both paths)? Why are only the last
# place's logits computed when it generates? Why are some matrices transposed when GPT-2's weights
# are loaded? Which parameters get weight decay?
#
# Questions for `train.py`: where does a batch come from? How does the rate rise and fall? By what
# is the loss divided under gradient accumulation? Does it evaluate on the whole validation split or
# on a few random batches? These are the subject of [07](/lesson/07).

# %% [quiz] order
# kind = "order"
# question.zh = "按先后排好一次前向。"
# question.en = "Put one forward pass in order."
# [[items]]
# zh = "词元嵌入 + 位置"
# en = "Token embedding + position"
# feedback.zh = "残差流从这里开始，形状 $(T, d)$。"
# feedback.en = "The residual stream begins here, $(T, d)$."
# [[items]]
# zh = "归一化 1，注意力，加回残差流"
# en = "Norm 1, attention, add to the stream"
# feedback.zh = "词元之间先交流。"
# feedback.en = "Tokens talk first."
# [[items]]
# zh = "归一化 2，前馈层，加回残差流"
# en = "Norm 2, feed-forward, add to the stream"
# feedback.zh = "再各自计算；这两步重复 $N$ 次。"
# feedback.en = "Then each computes by itself; these two repeat $N$ times."
# [[items]]
# zh = "最后一次归一化"
# en = "The final norm"
# feedback.zh = "残差流一路只加不减，末尾要调一次尺度。"
# feedback.en = "The stream has only been added to; its scale is set once at the end."
# [[items]]
# zh = "输出层：$d$ 个特征变成词表上的 logits"
# en = "Output layer: $d$ features become logits over the vocabulary"
# feedback.zh = "形状 $(T, V)$：每个位置都预测下一个词元。"
# feedback.en = "$(T, V)$: every place predicts the next token."

# %% [quiz] same
# kind = "choice"
# question.zh = "NumPy 与 torch 的 logits 差到 $0.05$。最该怀疑什么？"
# question.en = "NumPy's logits and torch's differ by $0.05$. What is the likeliest reason?"
# [[options]]
# zh = "浮点舍入"
# en = "Rounding"
# right = false
# feedback.zh = "单精度的相对舍入约 $10^{-7}$，几层累加也就 $10^{-5}$ 左右。$0.05$ 大了几千倍。"
# feedback.en = "A float32 rounds by about $10^{-7}$; some layers add up to about $10^{-5}$. $0.05$ is thousands of times that."
# [[options]]
# zh = "某个零件写得略有不同，例如 GELU 的两种写法"
# en = "A part that is written slightly differently, such as the two forms of GELU"
# right = true
# feedback.zh = "对。“几乎一样”的差多半是公式里的小差别：GELU 的 tanh 近似、eps 的位置、方差除以 $n$ 还是 $n-1$。"
# feedback.en = "Yes. \"Almost the same\" is mostly a small difference in a formula: GELU's tanh form, where eps stands, a variance over $n$ or $n-1$."
# [[options]]
# zh = "随机性：每次前向本来就不同"
# en = "Randomness: no two passes are alike"
# right = false
# feedback.zh = "评估模式下没有随机的东西。若两次真不同，那是 dropout 忘了关。"
# feedback.en = "Nothing is random in evaluation mode. If two passes do differ, dropout was left on."

# %% [quiz] scores
# kind = "number"
# question.zh = "12 层、12 头、48 个词元：一次前向要算多少张 $48 \\times 48$ 的打分表？"
# question.en = "12 layers, 12 heads, 48 tokens: how many tables of $48 \\times 48$ scores are computed in a pass?"
# answer = 144
# expression = "12 * 12"
# feedback.right.zh = "对：每层每头一张。词元数只决定表的大小。"
# feedback.right.en = "Yes: one for each head of each layer. The tokens only set their size."
# feedback.wrong.zh = "每一层的每一个头各有一张打分表。"
# feedback.wrong.en = "Each head of each layer has a table of its own."

# %% [quiz] cross-entropy
# kind = "code"
# question.zh = "补全 `nats`：给定 logits（$T \\times V$）和正确的下一个词元，返回平均损失（nats）。现在的写法没有把 logits 变成概率。"
# question.en = "Complete `nats`: from logits ($T \\times V$) and the true next tokens, return the mean loss in nats. As it stands, the logits never become probabilities."
# start = """
# import numpy as np
#
#
# def nats(logits, targets):
#     p = logits
#     return -p[np.arange(len(targets)), targets].mean()
# """
# solution = """
# import numpy as np
#
#
# def nats(logits, targets):
#     e = np.exp(logits - logits.max(-1, keepdims=True))
#     p = e / e.sum(-1, keepdims=True)
#     return -np.log(p[np.arange(len(targets)), targets]).mean()
# """
# check = """
# flat = np.zeros((3, 65))
# expect(
#     abs(nats(flat, np.array([1, 2, 3])) - np.log(65)) < 1e-9,
#     zh="logits 全相等时，65 个词元各占 1/65，损失应是 ln 65 ≈ 4.17：先 softmax，再取对数。",
#     en="With equal logits each of 65 tokens has 1/65, and the loss is ln 65 ≈ 4.17: softmax first, then the logarithm.",
# )
# sharp = np.array([[0.0, 1000.0]])
# expect(
#     abs(nats(sharp, np.array([1]))) < 1e-9,
#     zh="logits 很大时不能溢出：求指数之前先减去最大值。",
#     en="Large logits must not overflow: subtract the largest before taking exponentials.",
# )
# """
# feedback.right.zh = "对。减去最大值不改变结果，只防溢出。"
# feedback.right.en = "Right. Subtracting the largest changes nothing but safety."
# feedback.wrong.zh = "损失是正确词元的概率取负对数，再对位置求平均。"
# feedback.wrong.en = "The loss is the negative logarithm of the true token's probability, averaged over the places."

# %% [reading]
# [[items]]
# title = "nanoGPT"
# where = "Karpathy 2022, github.com/karpathy/nanoGPT, model.py and train.py"
# look.zh = "按上面的表找对应，再回答那几个问题。"
# look.en = "Find what matches by the table above, then answer the questions."
# [[items]]
# title = "partwise/reference.py"
# where = "partwise"
# look.zh = "同样是 NumPy，但写全了所有零件；测试拿它当 torch 模型的标准答案。"
# look.en = "NumPy too, but with every part; the tests use it as the answer key for the torch model."
# [[items]]
# title = "Improving Language Understanding by Generative Pre-Training"
# where = "Radford et al. 2018, section 3.1 and 4.1"
# look.zh = "第一篇 GPT 用三行公式写完整个模型。哪一行是这一课的 `block`？归一化放在哪里？"
# look.en = "The first GPT writes its whole model in three lines. Which is this lesson's `block`? Where is the norm?"
