# %% [lesson]
# number = "06.3"
# minutes = 30
# title.zh = "多头，以及为什么还要一个输出投影"
# title.en = "Many heads, and why a projection follows"

# %% [md zh] why
# 一个头在每个位置只有**一组**份额。可读一个词元时，常常同时需要几样东西：
# 前一个字符是什么？这一行从哪里开始？说话的人是谁？
#
# 让一个头各看一半行不行？不行：混合之后就分不清哪一半来自哪里了。看一个最小的例子。

# %% [md en] why
# One head has **one** set of shares at each place. But reading a token often takes several things at
# once: what was the character before? Where did this line begin? Who is speaking?
#
# Could one head look half here and half there? No: once mixed, nobody can tell which half came from
# where. The smallest example:

# %% [code] blend
A, B = np.array([1.0, 0.0]), np.array([0.0, 1.0])  # what two tokens hand over
print("one head, A speaks to B:", 0.5 * A + 0.5 * B)
print("one head, B speaks to A:", 0.5 * B + 0.5 * A)
print("two heads, A speaks to B:", np.concatenate([A, B]))
print("two heads, B speaks to A:", np.concatenate([B, A]))

# %% [md zh] blend-read
# 平均抹掉了角色；把两路结果**并排放**，角色就留住了。
# 多头注意力就是这样：$h$ 个头各有自己的查询、键、值，互不干扰地算，结果拼在一起。
#
# 宽度怎么分？不是每个头都用 $d$ 个特征，而是每个头分到 $d_k = d / h$ 个。
# 所以头数变了，总宽度不变，参数量也几乎不变。

# %% [md en] blend-read
# Averaging wipes out who is who; putting two results **side by side** keeps it. That is multi-head
# attention: $h$ heads, each with queries, keys and values of its own, work without disturbing each
# other, and their results are joined.
#
# And the width? Heads do not have $d$ features each: they share them, $d_k = d / h$ a head. More heads
# are narrower heads, and the parameters stay as many.

# %% [code] count
from dataclasses import replace

from partwise.model.parameters import parameters_by_part

for h in (1, 2, 4, 8):
    c = replace(
        config,
        d_model=64,
        n_heads=h,
        n_kv_heads=None,
        head_dim=None,
        position="learned",
    )
    print(
        f"h = {h}: d_k = {c.head_size:2}, parameters {parameters_by_part(c)['attention']:,}"
    )

# %% [md zh] split-why
# ## 练习：把一张表拆成几个头
#
# 程序里并不真的写 $h$ 个小矩阵，而是一个大矩阵算出 $(L, h \cdot d_k)$ 的查询，再拆成 $(h, L, d_k)$。
# 第 $i$ 个头拿每一行里的第 $i$ 段。
#
# 下面这样拆，形状是对的，程序也不报错，模型却是错的。这是多头注意力里最常见的错误。请改好。

# %% [md en] split-why
# ## Exercise: one table into several heads
#
# In code there are no $h$ small matrices: one large matrix gives queries of $(L, h \cdot d_k)$, which
# are then split into $(h, L, d_k)$. Head $i$ takes the $i$-th stretch of every row.
#
# The split below has the right shape and raises no error, and yet the model is wrong. It is the most
# common mistake in multi-head attention. Mend it.

# %% [code] split
L, h, d_k = 3, 2, 4
# Row 0 holds 0..7, row 1 holds 8..15, row 2 holds 16..23.
table = np.arange(L * h * d_k).reshape(L, h * d_k)


def split(table, h):
    L, width = table.shape
    return table.reshape(h, L, width // h)


print(table)
print(split(table, h))

# %% [solution] split
L, h, d_k = 3, 2, 4
table = np.arange(L * h * d_k).reshape(L, h * d_k)


def split(table, h):
    L, width = table.shape
    return table.reshape(L, h, width // h).swapaxes(0, 1)


print(table)
print(split(table, h))

# %% [check] split
_table = np.arange(30).reshape(5, 6)
_found = np.asarray(split(_table, 3))
if expect(
    _found.shape == (3, 5, 2),
    zh=f"5 行、宽 6、3 个头，应当拆成 (3, 5, 2)，现在是 {_found.shape}。",
    en=f"5 rows of width 6 into 3 heads should give (3, 5, 2), not {_found.shape}.",
):
    expect(
        np.array_equal(_found[0], _table[:, :2]),
        zh=f"第 0 个头应当拿每一行的前两个数 {_table[:, :2].tolist()}，现在拿的是 {_found[0].tolist()}："
        "一行被切碎，分给了不同的词元。先 reshape 成 (L, h, d_k)，再交换前两个轴。",
        en=f"Head 0 should take the first two numbers of each row, {_table[:, :2].tolist()}; it took "
        f"{_found[0].tolist()}: rows were cut up among tokens. Reshape to (L, h, d_k) first, then swap "
        "the first two axes.",
    )

# %% [md zh] concat-why
# ## 拼起来，再乘一个矩阵
#
# 各头算完，拼回宽 $d$ 的一行，最后还要乘一个 $d \times d$ 的矩阵 $W_O$，叫**输出投影**。
# 为什么不直接把拼好的结果加回残差流？

# %% [md en] concat-why
# ## Join, then one more matrix
#
# The heads' results are joined to rows of width $d$ again, and then multiplied by a matrix $W_O$ of
# $d \times d$, the **output projection**. Why not add the joined rows to the residual stream as they
# are?

# %% [formula] concat
# latex = 'Y = \operatorname{Concat}(Y_1, Y_2)\, W_O'
# code = "concat"
# names = {Y = "Y", Y_1 = "heads[0]", Y_2 = "heads[1]", W_O = "W_O"}
# caption.zh = "两个头的情形：并排放好，再混合"
# caption.en = "With two heads: side by side, then mixed"

# %% [code] concat
rng = np.random.default_rng(3)
d = h * d_k
heads = rng.normal(size=(h, L, d_k))  # what each head found
W_O = rng.normal(size=(d, d))
Y = np.concatenate([heads[0], heads[1]], axis=-1) @ W_O  # (L, d)
print(Y.shape)

# %% [md zh] sum-why
# 把 $W_O$ 横着切成 $h$ 段，每段 $d_k$ 行，第 $i$ 段记作 $W_i$。矩阵乘法告诉我们，上式正好等于：

# %% [md en] sum-why
# Cut $W_O$ into $h$ bands of $d_k$ rows each, and call the $i$-th one $W_i$. By the rules of matrix
# products the formula above is exactly this:

# %% [formula] sum
# latex = 'Y = \sum_{i=1}^{h} Y_i W_i'
# code = "sum"
# names = {Y = "total", Y_i = "heads[i - 1]", W_i = "W_O[(i - 1) * d_k : i * d_k]", h = "h"}
# caption.zh = "换个读法：每个头用自己的一段 W 写进残差流，写完相加"
# caption.en = "Read differently: each head writes into the stream by its own band of W, and the writings add up"

# %% [code] sum
total = sum(heads[i] @ W_O[i * d_k : (i + 1) * d_k] for i in range(h))  # (L, d)
print("the same:", np.allclose(total, Y))

# %% [md zh] sum-read
# 这才看清输出投影的用处。
#
# - **没有它**，第 $i$ 个头只能写残差流的第 $i$ 段特征：写到哪里由编号决定，和内容无关。
# - **有了它**，每个头能写到残差流的任何方向，几个头也能写到同一个方向，互相加强或抵消。
#
# 残差流有自己的“坐标”，嵌入、前馈层、输出层都认这套坐标。输出投影就是把头里的东西翻译回这套坐标。
# 下面在你的模型上看：第 0 块的每个头，写进残差流后分布在多少个特征上？

# %% [md en] sum-read
# Now the projection's purpose is plain.
#
# - **Without it**, head $i$ can only write the $i$-th stretch of the stream's features: where it writes
#   is decided by its number and not by what it found.
# - **With it**, each head can write in any direction of the stream, and several can write in the same
#   one, to reinforce or to cancel each other.
#
# The stream has coordinates of its own, which the embedding, the feed-forward layers and the output
# layer share. The projection translates what a head holds into them. In your model: over how many
# features does each head of block 0 spread what it writes?

# %% [code] spread
d, size = config.d_model, config.head_size
if config.output_projection:
    W = weights["blocks.0.attention.projection.weight"].T  # (heads * head size, d)
else:
    print(lacking("projection"))
    W = np.eye(config.n_heads * size, d)
for i in range(config.n_heads):
    band = W[i * size : (i + 1) * size]  # (head size, d)
    power = (band**2).sum(axis=0)
    own = power[i * size : (i + 1) * size].sum() / power.sum()
    print(
        f"head {i}: {own:.0%} of its writing is on its own {size} features ({size / d:.0%} of all)"
    )

# %% [md zh] conv-why
# 两个百分比差不多，就是说它写遍了整条残差流，编号不起作用。
#
# ## 像分组卷积，又不全像
#
# 学过卷积网络的人会觉得眼熟：把通道分成几组，各组单独算，最后用 $1 \times 1$ 卷积混合（ResNeXt）。
# 头就是组，输出投影就是那个 $1 \times 1$ 卷积：它对每个词元单独做，只混合特征。
#
# 但有一点不同，常被说漏：分组卷积的每一组只**读**自己那组通道；
# 而注意力的每个头读的是**全部** $d$ 个特征（$W_Q$ 的每一列都连着整个 $x$），只是算出来的东西比较窄。
# 下面的实验改动输入的一个特征，看有几个头的查询跟着变。

# %% [md en] conv-why
# Where the two percentages are about equal, a head writes all over the stream, and its number plays no
# part.
#
# ## Like a grouped convolution, but not quite
#
# To those who know convolutional networks this looks familiar: channels are split into groups, each
# group is computed alone, and a $1 \times 1$ convolution mixes them at the end (ResNeXt). Heads are the
# groups, and the projection is that $1 \times 1$ convolution: it treats each token alone and mixes
# features only.
#
# One difference is often left out. A group of a convolution **reads** its own channels alone, whereas
# each head reads **all** $d$ features (every column of $W_Q$ is joined to the whole of $x$); only what
# it makes of them is narrow. Move one feature of the input, and see how many heads' queries move.

# %% [code] reach
qkv = weights["blocks.0.attention.qkv.weight"]
W_Q = qkv[: config.n_heads * config.head_size].T  # (d, heads * head size)
moved = split(W_Q, config.n_heads)[
    :, 0
]  # how each head's query answers to feature 0
reached = int((np.abs(moved).max(axis=-1) > 0).sum())
print(f"heads that feature 0 reaches: {reached} of {config.n_heads}")

# %% [md zh] mute-why
# ## 静音一个头
#
# 训练好的模型里，每个头值多少？最直接的办法：让它闭嘴，看验证损失涨多少。
# `silenced` 在 `with` 里面把一个零件的输出变成 0，权重一个不动。

# %% [md en] mute-why
# ## Mute a head
#
# What is each head of a trained model worth? The direct way: silence it and see how much the validation
# loss rises. Inside the `with`, `silenced` makes a part's output zero; no weight is touched.

# %% [code] mute
from partwise.ladder.knockout import parts, silenced

whole = val_loss()
cost = np.zeros((config.n_layers, config.n_heads))
together = np.zeros(config.n_layers)
for layer in range(config.n_layers):
    with silenced(model, f"block.{layer}.attention"):
        together[layer] = val_loss() - whole
    for head in range(config.n_heads):
        part = f"block.{layer}.attention.head.{head}"
        if part not in parts(model):  # a single head is all of attention
            part = f"block.{layer}.attention"
        with silenced(model, part):
            cost[layer, head] = val_loss() - whole

print(f"loss with all heads: {whole:.3f}")
for layer in range(config.n_layers):
    each = "  ".join(f"{c:+.3f}" for c in cost[layer])
    print(
        f"block {layer}: {each}   sum {cost[layer].sum():+.3f}, all at once {together[layer]:+.3f}"
    )
show(
    cost,
    rows=[f"block {i}" for i in range(config.n_layers)],
    cols=[f"head {i}" for i in range(config.n_heads)],
    title="loss added when muted",
)

# %% [widget] heads
# name = "Heads"
# label.zh = "换头数，静音任意一个头，看份额和损失"
# label.en = "Change the number of heads, mute any of them, watch shares and loss"

# %% [md zh] mute-read
# 有的代价甚至是负的：在这一小段文本上，少了它反而好一点，这点差别不必当真。
#
# 读这张表要小心两点。
#
# - 静音一个头几乎没有代价，不等于它没用：别的头可能写了差不多的东西。
#   所以单独代价之和，与一起静音的代价通常对不上。
# - 这是“**现在拿掉**”，不是“**从来没有过**”。没有它，训练会另走一条路。
#   两种问法的差别，[06.12](/lesson/06.12) 的消融板上可以并排比较。

# %% [md en] mute-read
# Some costs may even be negative: on this short text the model does a little better without that head,
# which means nothing much.
#
# Two cautions in reading this table.
#
# - That a head costs next to nothing to mute does not say that it is useless: another may have written
#   much the same. So the single costs seldom add up to the cost of muting all at once.
# - This is "**removed now**" and not "**never had**". Without the head, training would have gone
#   another way. [06.12](/lesson/06.12) puts the two questions side by side.

# %% [quiz] width
# kind = "number"
# question.zh = "GPT-3 的 $d = 12{,}288$，96 个头。每个头宽多少？"
# question.en = "GPT-3 has $d = 12{,}288$ and 96 heads. How wide is a head?"
# answer = 128
# expression = "12288 // 96"
# feedback.right.zh = "对。从 GPT-2 到 GPT-3，宽度涨了许多，头宽只在 64 到 128 之间：多出来的宽度都用来加头了。"
# feedback.right.en = "Yes. From GPT-2 to GPT-3 the width grew much and a head's hardly: 64 to 128. Added width went into more heads."
# feedback.wrong.zh = "$d_k = d / h$，各头平分宽度。"
# feedback.wrong.en = "$d_k = d / h$: heads share the width evenly."

# %% [quiz] proj
# kind = "choice"
# question.zh = "没有输出投影，直接把拼好的各头加回残差流。主要的损失是什么？"
# question.en = "Without the projection, the joined heads are added to the stream as they are. What is the main loss?"
# [[options]]
# zh = "形状对不上，加不起来"
# en = "The shapes do not fit, so they cannot be added"
# right = false
# feedback.zh = "$h \\cdot d_k = d$，形状正好。它不是为了改形状（除非头宽另外设定）。"
# feedback.en = "$h \\cdot d_k = d$: they fit. The projection is not there to change a shape (unless head sizes are chosen freely)."
# [[options]]
# zh = "每个头只能写残差流里固定的一段特征，几个头也无法合作写同一个方向"
# en = "Each head can only write one fixed stretch of features, and heads cannot work on one direction together"
# right = true
# feedback.zh = "对。写到哪里应当由学习决定，而不是由头的编号决定。"
# feedback.en = "Yes. Where to write is a thing to be learned, and not to follow from a head's number."
# [[options]]
# zh = "词元之间无法交流"
# en = "Tokens cannot talk to each other"
# right = false
# feedback.zh = "交流发生在份额乘值的那一步；输出投影对每个词元单独做。"
# feedback.en = "They talk where shares multiply values; the projection treats each token alone."

# %% [quiz] groups
# kind = "many"
# question.zh = "多头注意力与分组卷积，哪些说法对？"
# question.en = "Multi-head attention and grouped convolution: which are true?"
# [[options]]
# zh = "中间的计算分组进行，组与组互不来往"
# en = "In the middle, groups are computed apart, with no traffic between them"
# right = true
# feedback.zh = "对，这是相像之处。"
# feedback.en = "Yes, there they are alike."
# [[options]]
# zh = "输出投影的作用相当于 $1 \\times 1$ 卷积"
# en = "The output projection plays the part of a $1 \\times 1$ convolution"
# right = true
# feedback.zh = "对：逐个词元，只混合特征。"
# feedback.en = "Yes: token by token, mixing features only."
# [[options]]
# zh = "每个头只读残差流里属于自己的那段特征"
# en = "A head reads only its own stretch of the stream's features"
# right = false
# feedback.zh = "不。每个头读全部 $d$ 个特征，上面刚测过。"
# feedback.en = "No. A head reads all $d$ features; you have just measured it."
# [[options]]
# zh = "头的份额随输入而变，卷积核训练好就固定了"
# en = "A head's shares depend on the input; a trained kernel is fixed"
# right = true
# feedback.zh = "对，这是更根本的不同：从谁那里取多少，注意力当场决定。"
# feedback.en = "Yes, and this difference goes deeper: whom to take from, attention decides on the spot."

# %% [quiz] silent
# kind = "choice"
# question.zh = "某个头静音后，损失只涨了 0.001。能得出什么？"
# question.en = "A head is muted and the loss rises by 0.001. What follows?"
# [[options]]
# zh = "这个头什么也没学到"
# en = "That head learned nothing"
# right = false
# feedback.zh = "不一定：也许另一个头做着差不多的事，替它补上了。"
# feedback.en = "Not necessarily: another head may do much the same and cover for it."
# [[options]]
# zh = "在这段文本上，其余部分不靠它也够用了"
# en = "On this text, the rest can do without it"
# right = true
# feedback.zh = "对。这就是这个测量说的全部：在这段文本上、其他零件都在的时候。"
# feedback.en = "Yes, and that is all the measurement says: on this text, with all other parts in place."
# [[options]]
# zh = "从头训练一个少一个头的模型，损失也会高 0.001"
# en = "A model trained without it from the start will also be 0.001 worse"
# right = false
# feedback.zh = "这是另一个问题，要训练了才知道。"
# feedback.en = "That is another question; one has to train to know."

# %% [reading]
# [[items]]
# title = "Vaswani et al. 2017, Attention Is All You Need"
# where = "3.2.2; table 3 (A)"
# look.zh = "作者自己怎样解释多头（一句话）；表 3 的 A 组：头太少和太多都变差。"
# look.en = "The authors' own reason for many heads, in a sentence; rows A of table 3: too few and too many are both worse."
# [[items]]
# title = "Michel et al. 2019, Are Sixteen Heads Really Better than One?"
# where = "3"
# look.zh = "他们对翻译模型做了和你一样的静音实验，大多数头单独拿掉几乎没有代价。"
# look.en = "The same muting, on translation models: most heads, one at a time, cost next to nothing."
# [[items]]
# title = "nanoGPT"
# where = "model.py, CausalSelfAttention.forward"
# look.zh = "`view(B, T, self.n_head, C // self.n_head).transpose(1, 2)`：你的练习就在这一行里。"
# look.en = "`view(B, T, self.n_head, C // self.n_head).transpose(1, 2)`: your exercise is this line."
