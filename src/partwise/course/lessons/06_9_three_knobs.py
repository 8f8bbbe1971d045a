# %% [lesson]
# number = "06.9"
# minutes = 25
# title.zh = "三个旋钮：层数、宽度、头数"
# title.en = "Three knobs: depth, width, heads"

# %% [md zh] why
# GPT-3 的参数是 GPT-2 small 的 1403 倍，块却还是同一种块。
# 变的主要是三个数：块数 $N$、残差流的宽度 $d$、每块的头数 $h$。
#
# 这一课要练出一种本事：看到 $N$、$d$、$h$，就能心算出参数量，再推出训练要多少计算、多少内存、多少时间。
# 心算会有误差，误差从哪里来也要说得清。

# %% [md en] why
# GPT-3 has 1,403 times the parameters of GPT-2 small, and still the same kind of block.
# What changed is mainly three numbers: how many blocks $N$, how wide the residual stream $d$,
# how many heads $h$ in each block.
#
# This lesson trains one skill: from $N$, $d$ and $h$, work out in your head how many parameters a
# model has, and from those how much computing, memory and time it takes. The estimate is off by
# something, and you should be able to say by what.

# %% [code] table
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset

names = [
    "ladder-5",
    "ladder-6",
    "gpt2",
    "gpt2-xl",
    "gpt3-175b",
    "llama-65b",
    "palm-540b",
]
print(f"{'':>10} {'N':>4} {'d':>6} {'h':>4} {'d_k':>4} {'parameters':>16}")
for name in names:
    c = preset(name)
    print(
        f"{name:>10} {c.n_layers:4} {c.d_model:6} {c.n_heads:4} {c.head_size:4} "
        f"{count_parameters(c):16,}"
    )

# %% [md zh] about-heads
# ## 头宽
#
# 先看 $d_k$ 那一列。宽度由各个头平分，所以每个头分到 $d/h$ 个特征。

# %% [md en] about-heads
# ## Head size
#
# Look at the column $d_k$ first. The heads share the width out evenly, so each gets $d/h$ features.

# %% [formula] head-size
# latex = 'd_k = \frac{d}{h}'
# code = "head-size"
# names = {d_k = "d_k", d = "d", h = "h"}
# caption.zh = "一个头的宽度；这里填的是 GPT-3 的数"
# caption.en = "Width of one head; the numbers are GPT-3's"

# %% [code] head-size
d, h = 12288, 96
d_k = d / h
print(d_k)

# %% [md zh] why-64
# 表里除了阶梯的小模型和 PaLM，$d_k$ 都落在 64 到 128 之间。原因有两头：
#
# - **太窄**：一个头的打分 $QK^\top$ 的秩不超过 $d_k$。
#   只有 8 个特征的头，能分辨的“谁该听谁”很有限。
# - **太宽**：宽度一定时，头变宽就意味着头变少，同一层能同时关注的关系也变少。
#
# 64 和 128 还是矩阵乘法单元喜欢的尺寸。
# 但这是惯例，不是定律：PaLM 用 256（Chowdhery 等，2022，表 1）；
# Kaplan 等（2020，3.1 节）发现，总参数量固定时，损失对形状的变化很不敏感。

# %% [md en] why-64
# Except for the ladder's small models and PaLM, every $d_k$ in the table lies between 64 and 128.
# It is squeezed from two sides:
#
# - **Too narrow**: a head's scores $QK^\top$ have rank $d_k$ at most. With 8 features, a head can
#   tell apart only so many reasons for one token to listen to another.
# - **Too wide**: at a given width, wider heads are fewer heads, and fewer relations that one layer
#   can follow at the same time.
#
# 64 and 128 are also sizes that matrix hardware likes. Still it is a habit and no law: PaLM has
# heads of 256 (Chowdhery et al. 2022, table 1), and Kaplan et al. (2020, section 3.1) found that
# with the parameter count fixed, the loss depends on the shape very little.

# %% [md zh] derive
# ## 一个块有多少参数
#
# 现在数一个块的参数，只数矩阵：
#
# - 注意力有四个 $d \times d$ 的矩阵：查询、键、值、输出投影，共 $4d^2$。
#   头数不在式子里：$h$ 个 $d \times \frac{d}{h}$ 的矩阵拼起来，正好是一个 $d \times d$。
# - 前馈层先升到 $4d$ 再降回 $d$：$d \cdot 4d + 4d \cdot d = 8d^2$。
#
# 一块是 $12d^2$，$N$ 块是 $12Nd^2$。

# %% [md en] derive
# ## How many parameters a block has
#
# Now count the parameters of one block, matrices only:
#
# - Attention has four matrices of $d \times d$: queries, keys, values and the output projection,
#   $4d^2$ together. The number of heads is not in it: $h$ matrices of $d \times \frac{d}{h}$ side
#   by side make one of $d \times d$.
# - The feed-forward layer goes up to $4d$ and back: $d \cdot 4d + 4d \cdot d = 8d^2$.
#
# One block is $12d^2$, and $N$ blocks are $12Nd^2$.

# %% [formula] twelve
# latex = 'P = N (4 d^2 + 8 d^2)'
# code = "twelve"
# names = {P = "P", N = "N", d = "d"}
# caption.zh = "注意力占三分之一，前馈层占三分之二"
# caption.en = "Attention holds a third, the feed-forward layer two thirds"

# %% [code] twelve
N, d = 96, 12288
P = N * (4 * d**2 + 8 * d**2)
print(f"12 N d^2 = {P:,}")
for h in (1, 12, 96, 768):
    c = pw.ModelConfig(n_layers=N, d_model=d, n_heads=h)
    print(f"h = {h:3}, d_k = {c.head_size:5}: {count_parameters(c):,}")

# %% [md zh] heads-free
# 最后几行说明：只改头数，参数量一个也不变。$h$ 是三个旋钮里唯一不花参数的。
#
# ## 估计与准确值
#
# 估计离准确值多远？逐个算：

# %% [md en] heads-free
# The last lines show that changing the number of heads alone changes no count at all. Of the three
# knobs, $h$ is the one that costs no parameters.
#
# ## Estimate and exact count
#
# How far is the estimate from the exact count? Model by model:

# %% [code] gap
from partwise.model.parameters import approximation, approximation_gap

off = {}
for name in ["gpt3-175b", "llama-65b", "ladder-6", "gpt2-xl", "llama2-70b", "gpt2"]:
    c = preset(name)
    exact_count = count_parameters(c)
    off[name] = 100 * (approximation(c) / exact_count - 1)
    missed = approximation_gap(c)
    most = max(missed, key=lambda part: abs(missed[part]))
    print(f"{name:>10}: {off[name]:6.1f} %   most of it: {most} {missed[most]:+,}")

# %% [check] gap
wanted = {
    "gpt3-175b": -0.4,
    "llama-65b": -1.3,
    "ladder-6": -1.6,
    "gpt2-xl": -5.3,
    "llama2-70b": -6.6,
    "gpt2": -31.7,
}
expect(
    all(abs(off[name] - value) < 0.05 for name, value in wanted.items()),
    zh="误差应是 (12Nd² / 准确值 − 1) × 100；请恢复这一格原来的算法。",
    en="The error is (12Nd² / exact − 1) × 100; restore the cell's own arithmetic.",
)

# %% [md zh] gap-read
# 读法：
#
# - **GPT-2 small 少算了近三分之一**，因为词表有 50,257 行，每行 768 个数。
#   词表的参数随 $d$ 增长，块的参数随 $Nd^2$ 增长，所以模型越大，估计越准。
# - **Llama 2 70B 的误差不来自词表**。
#   它让 8 个键值头给 64 个查询头共用，注意力小于 $4d^2$；前馈层用 SwiGLU，三个矩阵，大于 $8d^2$。
#   后者更多，所以低估 6.6%。“12”只属于经典的块。
#
# **练习**：把下面的 `exact` 补全，让 GPT-2 的参数一个不差。
# 经典块的每个矩阵都带偏置，每个 LayerNorm 有 $\gamma$ 和 $\beta$。

# %% [md en] gap-read
# How to read it:
#
# - **GPT-2 small is missing almost a third**: its vocabulary has 50,257 rows of 768 numbers. The
#   vocabulary grows with $d$ and the blocks with $Nd^2$, so the estimate improves with size.
# - **Llama 2 70B is not off because of its vocabulary.** Its 64 query heads share 8 heads of keys
#   and values, so attention is smaller than $4d^2$; its SwiGLU has three matrices, more than
#   $8d^2$. The second weighs more, hence 6.6 % too few. The 12 belongs to the classic block.
#
# **Exercise**: complete `exact` until not one parameter of GPT-2 is missing. Every matrix of the
# classic block has a bias, and every LayerNorm a $\gamma$ and a $\beta$.


# %% [code] exact
def exact(c):
    N, d, V, T = c.n_layers, c.d_model, c.vocab_size, c.context_length
    return 12 * N * d**2


print(f"{exact(preset('gpt2')):,} of {count_parameters(preset('gpt2')):,}")


# %% [solution] exact
def exact(c):
    N, d, V, T = c.n_layers, c.d_model, c.vocab_size, c.context_length
    matrices = 12 * d**2
    biases = 3 * d + d + 4 * d + d
    norms = 2 * (2 * d)
    return N * (matrices + biases + norms) + V * d + T * d + 2 * d


print(f"{exact(preset('gpt2')):,} of {count_parameters(preset('gpt2')):,}")

# %% [check] exact
gpt2 = preset("gpt2")
short = count_parameters(gpt2) - exact(gpt2)
expect(
    short < 30_000_000,
    zh="还差三千多万：词表是一张 V × d 的表，它也是输出层（共用，只算一次）。",
    en="Tens of millions are missing: the vocabulary is a table of V × d, and it is the output layer"
    " too (shared, so counted once).",
)
expect(
    not 100_000 < short < 30_000_000,
    zh=f"还差 {short:,}：位置嵌入是一张 T × d 的表。",
    en=f"{short:,} are missing: the position embedding is a table of T × d.",
)
expect(
    not 0 < short <= 900_000,
    zh=f"还差 {short:,}：每块的偏置有 3d（QKV）+ d（投影）+ 4d + d（前馈），"
    "两个 LayerNorm 各有 2d；块外还有一个最终的 LayerNorm。",
    en=f"{short:,} are missing: a block has biases 3d (QKV) + d (projection) + 4d + d "
    "(feed-forward) and two LayerNorms of 2d each; one more LayerNorm stands outside the blocks.",
)
expect(
    short >= 0,
    zh=f"多算了 {-short:,}：GPT-2 的输出层与词表共用参数，只算一次。",
    en=f"{-short:,} too many: GPT-2's output layer is its vocabulary table, counted once.",
)
expect(
    exact(preset("gpt2-xl")) == count_parameters(preset("gpt2-xl")),
    zh="GPT-2 small 对了还不够，GPT-2 XL 也要一个不差；别写死数字，用 N、d、V、T。",
    en="GPT-2 XL must come out exactly as well; use N, d, V and T, not fixed numbers.",
)

# %% [md zh] about-compute
# ## 计算量
#
# 接着是计算量。前向时，每个权重对每个词元做一次乘法、一次加法：2 次运算。
# 反向要对输入和对权重各求一次梯度，是前向的两倍。合起来，每个权重每个词元 6 次运算。

# %% [md en] about-compute
# ## Computing
#
# Next, computing. Going forward, each weight multiplies and adds once for each token: 2 operations.
# Going backward takes a gradient for the input and one for the weight, twice the forward pass.
# Together: 6 operations for each weight and token.

# %% [formula] compute
# latex = 'C = 6 P D'
# code = "compute"
# names = {C = "C", P = "P", D = "D"}
# caption.zh = "训练的计算量：P 个参数，D 个词元（Kaplan 等，2020，2.1 节）"
# caption.en = "Operations of a training: P parameters, D tokens (Kaplan et al. 2020, section 2.1)"

# %% [code] compute
P, D = count_parameters(preset("gpt3-175b")), 300e9
C = 6 * P * D
a_day = 312e12 * 0.4 * 86400
print(
    f"GPT-3: {C:.2e} operations = {C / a_day / 365:.0f} years on one A100 at 40 % of its peak"
)

from partwise.machine import measured

P6, D6 = count_parameters(preset("ladder-6")), 5000 * 64 * 256
here = measured().float32_flops
print(
    f"rung 6: {6 * P6 * D6:.2e} operations = {6 * P6 * D6 / here / 3600:.1f} hours here, at best"
)

# %% [md zh] compute-read
# Brown 等（2020，附录 D）给出的 GPT-3 训练量是 $3.14 \times 10^{23}$，与我们算出的一致。
# $6PD$ 漏掉了注意力打分那一项：它与上下文长度成正比，GPT-3 里只占百分之一强。
# 上下文很长时就不能漏。

# %% [md en] compute-read
# Brown et al. (2020, appendix D) give $3.14 \times 10^{23}$ for GPT-3, which is what we found.
# $6PD$ leaves out the attention scores, whose cost grows with the context; in GPT-3 they are a
# little over one per cent. With long contexts they must not be left out.

# %% [formula] cache
# latex = 'B = 2 N g d_k T b'
# code = "cache"
# names = {B = "B", N = "N", g = "g", d_k = "d_k", T = "T", b = "b"}
# caption.zh = "KV 缓存的字节数：键和值，N 层，g 个键值头，T 个词元，每个数 b 字节"
# caption.en = "Bytes of the KV cache: keys and values, N layers, g key-value heads, T tokens, b bytes"

# %% [code] cache
c, T, b = preset("llama2-70b"), 4096, 2
N, d_k = c.n_layers, c.head_size
for g in (c.n_heads, c.key_value_heads):
    B = 2 * N * g * d_k * T * b
    print(f"{g:2} key-value heads: {B / 1e9:5.2f} GB for one text of {T} tokens")
weights_bytes = count_parameters(c) * b
adam_bytes = count_parameters(c) * 16
print(
    f"weights to generate with: {weights_bytes / 1e9:.0f} GB; to train: {adam_bytes / 1e9:,.0f} GB"
)

# %% [md zh] memory
# ## 内存
#
# 两笔内存账：
#
# - **训练**：每个参数要 4 字节的权重、4 字节的梯度，AdamW 还记两个 4 字节的平均值，共 16 字节；
#   反向传播要用的激活值另算，批次越大越多。
# - **生成**：权重，加上 KV 缓存。
#   缓存正比于文本长度，所以 Llama 2 70B 才让 8 个查询头共用一组键和值，把缓存缩到八分之一。
#
# 在计算器里拧一拧，它用的就是这一课的算法，只是数得更全。

# %% [md en] memory
# ## Memory
#
# Two accounts of memory:
#
# - **Training**: each parameter needs a weight of 4 bytes and a gradient of 4; AdamW remembers two
#   more means of 4 bytes each: 16 in all. Activations kept for the backward pass come on top and
#   grow with the batch.
# - **Generating**: the weights, and the KV cache. The cache grows with the text, which is why in
#   Llama 2 70B eight query heads share one head of keys and values: an eighth of the cache.
#
# Turn the knobs of the calculator. It does this lesson's arithmetic, only more completely.

# %% [widget] calculator
# name = "Calculator"
# preset = "ladder-6"
# label.zh = "计算器：拧动 N、d、h，看参数、计算、内存和时间"
# label.en = "Calculator: turn N, d and h; see parameters, operations, memory and time"

# %% [quiz] head-size-gpt3
# kind = "number"
# question.zh = "GPT-3 13B 有 40 层、40 个头，宽 5120。每个头多宽？"
# question.en = "GPT-3 13B has 40 layers, 40 heads and width 5120. How wide is a head?"
# answer = 128
# expression = "5120 / 40"
# feedback.right.zh = "对。论文的表里把宽度印成了 5140，可 40 × 128 = 5120：除不尽就知道印错了。"
# feedback.right.en = "Yes. The paper's table prints the width as 5140, but 40 × 128 = 5120: a width that does not divide gives the misprint away."
# feedback.wrong.zh = "宽度由各头平分：用 d 除以 h。层数与此无关。"
# feedback.wrong.en = "The heads share the width evenly: divide d by h. The number of layers has no part in it."

# %% [quiz] double
# kind = "choice"
# question.zh = "其他不变，哪一项让块里的参数变成四倍？"
# question.en = "All else equal, what makes the blocks' parameters four times as many?"
# [[options]]
# zh = "层数 $N$ 翻倍"
# en = "Twice the layers $N$"
# right = false
# feedback.zh = "$12Nd^2$ 对 $N$ 是一次的：只翻一倍。"
# feedback.en = "$12Nd^2$ is linear in $N$: only twice as many."
# [[options]]
# zh = "宽度 $d$ 翻倍"
# en = "Twice the width $d$"
# right = true
# feedback.zh = "对。矩阵的两条边都随 $d$ 变长，所以是平方。"
# feedback.en = "Yes. Both sides of every matrix grow with $d$, hence the square."
# [[options]]
# zh = "头数 $h$ 翻两番"
# en = "Four times the heads $h$"
# right = false
# feedback.zh = "$d$ 不变时，头多了就各自变窄，拼起来还是 $d \\times d$：参数不变。"
# feedback.en = "With $d$ fixed, more heads are narrower heads; side by side they are still $d \\times d$: no change."
# [[options]]
# zh = "上下文长度翻两番"
# en = "Four times the context"
# right = false
# feedback.zh = "块里没有一个参数与上下文长度有关；只有学习到的位置嵌入会变长，而它在块外。"
# feedback.en = "No parameter of a block depends on the context; only a learned position table grows, and that is outside the blocks."

# %% [quiz] why-off
# kind = "many"
# question.zh = "$12Nd^2$ 没有算进哪些参数？"
# question.en = "Which parameters does $12Nd^2$ leave out?"
# [[options]]
# zh = "词元嵌入"
# en = "Token embeddings"
# right = true
# feedback.zh = "对，$Vd$ 个；小模型里这是最大的一笔。"
# feedback.en = "Yes, $Vd$ of them; in small models the largest omission."
# [[options]]
# zh = "LayerNorm 的 $\\gamma$ 和 $\\beta$"
# en = "The $\\gamma$ and $\\beta$ of LayerNorm"
# right = true
# feedback.zh = "对，每个 LayerNorm 有 $2d$ 个。它们随 $d$ 增长而不是 $d^2$，占比极小。"
# feedback.en = "Yes, $2d$ in each. They grow with $d$, not $d^2$, so they hardly count."
# [[options]]
# zh = "注意力的输出投影"
# en = "Attention's output projection"
# right = false
# feedback.zh = "它算进去了：$4d^2$ 里的第四个 $d^2$。"
# feedback.en = "It is in: the fourth $d^2$ of the $4d^2$."
# [[options]]
# zh = "各个矩阵的偏置"
# en = "The matrices' biases"
# right = true
# feedback.zh = "对。LLaMA 干脆不用偏置。"
# feedback.en = "Yes. LLaMA does without them altogether."

# %% [quiz] order
# kind = "order"
# question.zh = "按参数量从小到大排：用 $12Nd^2$ 心算即可。"
# question.en = "Put in order, fewest parameters first; $12Nd^2$ in your head will do."
# [[items]]
# zh = "$N=48$，$d=1024$"
# en = "$N=48$, $d=1024$"
# feedback.zh = "$48 \\cdot 1024^2 \\approx 0.5$ 亿，乘 12 约 6 亿。"
# feedback.en = "$48 \\cdot 1024^2 \\approx 50$ million, times 12 about 0.6 billion."
# [[items]]
# zh = "$N=24$，$d=2048$"
# en = "$N=24$, $d=2048$"
# feedback.zh = "层数减半，宽度翻倍：$\\frac12 \\cdot 4 = 2$ 倍，约 12 亿。"
# feedback.en = "Half the layers, twice the width: $\\frac12 \\cdot 4$ = twice as many, about 1.2 billion."
# [[items]]
# zh = "$N=12$，$d=4096$"
# en = "$N=12$, $d=4096$"
# feedback.zh = "再来一次，又是 2 倍：约 24 亿。宽度赢过层数。"
# feedback.en = "Once more, and twice again: about 2.4 billion. Width beats depth."

# %% [reading]
# [[items]]
# title = "Scaling Laws for Neural Language Models"
# where = "Kaplan et al. 2020, sections 2.1 and 3.1"
# look.zh = "2.1 节的表 1 逐项数参数和运算，和本课对照；3.1 节的图 5 看形状对损失的影响有多小。"
# look.en = "Table 1 counts parameters and operations part by part: compare it with yours. Figure 5 shows how little the shape matters."
# [[items]]
# title = "Language Models are Few-Shot Learners"
# where = "Brown et al. 2020, table 2.1 and appendix D"
# look.zh = "用 $d/h$ 检查表 2.1 的每一行，有两行自相矛盾，找出来。"
# look.en = "Check every row of table 2.1 by $d/h$; two rows contradict themselves. Find them."
# [[items]]
# title = "partwise size"
# where = "partwise size gpt2; model/parameters.py"
# look.zh = "准确计数的每一项都在 `parameters_by_part` 里，先自己写，再对照。"
# look.en = "Every term of the exact count stands in `parameters_by_part`: write your own first, then compare."
