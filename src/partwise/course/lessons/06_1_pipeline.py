# %% [lesson]
# number = "06.1"
# minutes = 25
# title.zh = "流水线：从文本到下一个词元"
# title.en = "The pipeline: from text to the next token"

# %% [md zh] why
# 一段文本从左边进去，右边出来一张概率表：词表里每个词元，接在后面的机会有多大。
# 中间发生了什么？
#
# 这一课先不打开任何零件，只沿着流水线走一遍，每到一处就量一量**形状**和**数值**。
# 你会发现，从第一步到最后一步，几乎只有一样东西在流动：一张 $L \times d$ 的表，
# $L$ 行是 $L$ 个词元，$d$ 列是每个词元的特征。

# %% [md en] why
# A text goes in on the left; on the right comes a table of chances: for every token of the
# vocabulary, how likely it is to follow. What happens in between?
#
# This lesson opens no part yet. It walks along the pipeline once and at each stop takes the **shape**
# and looks at the **values**. From the first step to the last, you will see, nearly only one thing
# flows: a table of $L \times d$, with a row for each of the $L$ tokens and $d$ columns of features.

# %% [widget] pipeline
# name = "Pipeline"
# label.zh = "点任意一个箭头，看你的模型在那里的真实形状和数值"
# label.en = "Pick any arrow and see the real shape and values of your model there"

# %% [md zh] ids-why
# ## 第一步：文本变成编号
#
# 分词器给每个词元一个编号。编号只是名字，大小没有意义：5 号不比 4 号“大”。

# %% [md en] ids-why
# ## Step 1: text becomes numbers
#
# The tokenizer gives every token an id. An id is only a name, and its size means nothing: number 5 is
# not "more" than number 4.

# %% [code] ids
ids = val_ids[: min(16, config.context_length)]
L, V, d, N = len(ids), config.vocab_size, config.d_model, config.n_layers
print(repr(decode(ids)))
print(ids, ids.shape)

# %% [md zh] embed-why
# ## 第二步：编号变成一行特征
#
# 模型有一张 $V \times d$ 的表 $E$，第 $i$ 行就是 $i$ 号词元的**嵌入**。查表就是取行。
# 写成矩阵也行：把每个编号写成一个只有一处是 1 的行，合成矩阵 $O$，那么 $OE$ 正好取出这些行。
# 谁也不会真的这样算，但它说明了一件事：查表是线性运算，梯度能一路传到表里，所以表学得动。
#
# 光有词元还不够。[上一课](/lesson/05)看到，注意力不知道顺序，所以第 $t$ 个位置也有一行，加上去：

# %% [md en] embed-why
# ## Step 2: numbers become rows of features
#
# The model has a table $E$ of $V \times d$ whose row $i$ is the **embedding** of token $i$. Looking up
# means taking rows. As matrices: write each id as a row that is 1 in one place, stack the rows to $O$,
# and $OE$ picks exactly those rows. Nobody computes it so, but it shows that a lookup is linear: the
# gradient reaches the table, and so the table can learn.
#
# Tokens alone are not enough. [The last lesson](/lesson/05) showed that attention does not know order,
# so place $t$ has a row of its own, which is added:

# %% [formula] embed
# latex = 'X = O E + P'
# code = "embed"
# names = {X = "X", O = "O", E = "E", P = "P"}
# caption.zh = "残差流的起点：词元的嵌入加位置的嵌入"
# caption.en = "Where the residual stream begins: embeddings of tokens plus those of places"

# %% [code] embed
E = weights["token_embedding.weight"]  # (V, d)
# (context, d), where places are learned
table = weights.get("position_embedding.weight")
P = np.zeros((L, d)) if table is None else table[:L]
O = np.eye(V)[ids]  # (L, V): one 1 a row
X = O @ E + P  # (L, d)
print("picked rows are the same:", np.allclose(X, E[ids] + P), X.shape)

seen = observe(model, ids)
print("as in the model:", np.allclose(X, seen["embedding"], atol=1e-5))

# %% [md zh] walk-why
# 有的模型（例如 LLaMA）没有位置表，它在注意力里面转动查询和键；那样的话，这里的 $P$ 是 0。
#
# ## 第三步：N 个相同的块
#
# 现在把整条流水线一站一站列出来。`observe` 让模型跑一遍，记下途中的每一个张量。

# %% [md en] walk-why
# Some models (LLaMA, for one) have no table of places; they turn queries and keys inside attention
# instead. Then $P$ is 0 here.
#
# ## Step 3: N equal blocks
#
# Now the whole line, stop by stop. `observe` runs the model once and keeps every tensor on the way.

# %% [code] walk
for name, value in seen.items():
    first = name.startswith("block.0.") or not name.startswith("block.")
    if first or name.endswith(".output"):
        print(
            f"{name:26} {value.shape!s:13} mean {value.mean():5.2f} spread {value.std():5.2f}"
        )

# %% [md zh] walk-read
# 看形状那一列：除了注意力的份额 `(头, L, L)` 和最后的 `logits`，处处都是 $(L, d)$。
# 块的入口和出口形状相同，所以块可以一个接一个地叠，想叠多少叠多少。
#
# “相同”指的是结构，不是数值：每个块有自己的一套权重。下面验证这两点。

# %% [md en] walk-read
# Look at the shapes: but for the shares of attention, `(heads, L, L)`, and the `logits` at the end,
# all are $(L, d)$. What leaves a block has the shape of what enters it, so blocks can be stacked, as
# many as one likes.
#
# "Equal" is said of their structure and not of their numbers: each block has weights of its own. The
# next cell checks both.

# %% [code] equal
shapes = [
    {
        name.split(".", 2)[2]: w.shape
        for name, w in weights.items()
        if name.startswith(f"blocks.{i}.")
    }
    for i in range(N)
]
print("same parts in all blocks:", all(one == shapes[0] for one in shapes))
inside = sum(int(np.prod(shape)) for shape in shapes[0].values())
whole = sum(w.size for w in weights.values())
print(
    f"{N} blocks of {inside:,} numbers: {N * inside / whole:.1%} of all {whole:,}"
)
queries = [weights[f"blocks.{i}.attention.qkv.weight"] for i in range(N)]
for i in range(1, N):
    same = np.array_equal(queries[i], queries[0])
    print(f"block {i}: same numbers as block 0: {same}")

# %% [md zh] depths-why
# 真实的模型叠了多少块？深度 $N$ 从 12 到 96，块里的结构你都会在后面几课看到。

# %% [md en] depths-why
# How many blocks do real models stack? The depth $N$ goes from 12 to 96; what is inside a block comes
# in the next lessons.

# %% [code] depths
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset

for name in ("gpt2", "gpt2-xl", "llama-65b", "gpt3-175b"):
    c = preset(name)
    print(
        f"{name:10} N = {c.n_layers:3}  d = {c.d_model:6,}  {count_parameters(c) / 1e9:6.2f} bn"
    )

# %% [md zh] head-why
# ## 第四步：读出来
#
# 最后一个块之后，再做一次归一化，然后用一个矩阵 $W_U$ 把 $d$ 个特征变成 $V$ 个分数，叫 **logits**。
# 每一行都有自己的 logits：读到第 1 个词元时的猜测、读到第 2 个时的猜测……一次全给出来。

# %% [md en] head-why
# ## Step 4: reading it out
#
# After the last block comes one more norm, and then a matrix $W_U$ that turns $d$ features into $V$
# scores, the **logits**. Every row has its own: the guess after the first token, after the second, and
# so on, all at once.

# %% [formula] head
# latex = 'Z = H W_U^\top + b_U'
# code = "head"
# names = {Z = "Z", H = "H", W_U = "W_U", b_U = "b_U"}
# caption.zh = "输出层：H 是最后一次归一化之后的残差流；很多模型没有偏置，那么 b 是 0"
# caption.en = "The output layer: H is the residual stream after the final norm; many models have no bias, and b is 0"

# %% [code] head
from partwise import reference

x = seen[f"block.{N - 1}.output"]  # (L, d)
H = (
    reference.norm(config, reference.part(weights, "final_norm"), x)
    if config.final_norm
    else x
)
W_U = E if config.tie_embeddings else weights["head.weight"]  # (V, d)
b_U = weights.get("head.bias", np.zeros(V))
Z = H @ W_U.T + b_U  # (L, V)
print(Z.shape, "as in the model:", np.allclose(Z, seen["logits"], atol=1e-3))

# %% [formula] chances
# latex = 'p_i = \frac{\exp(z_i)}{\sum_{j=1}^{V} \exp(z_j)}'
# code = "chances"
# names = {p_i = "p", z_i = "z", z_j = "z[j - 1]", V = "len(z)"}
# caption.zh = "softmax：分数变成概率，都是正数，加起来是 1"
# caption.en = "softmax: scores become chances, all positive, adding up to 1"

# %% [code] chances
z = Z[-1]  # the guess after the last token
p = np.exp(z) / np.exp(z).sum()
print("after", repr(decode(ids[-8:])))
for i in p.argsort()[::-1][:5]:
    print(f"  {decode([i])!r:6} {p[i]:.1%}")
print("what really came:", repr(decode(val_ids[L : L + 1])))

# %% [md zh] write-why
# ## 练习：让它写下去
#
# 流水线只猜一个词元。要写一段话，就把猜出的词元接在后面，再走一遍流水线，如此反复。
# 请补全 `write`：每次取最后一行 logits 里最大的那个。
# 注意模型一次最多读 `config.context_length` 个词元，太长时只留结尾。

# %% [md en] write-why
# ## Exercise: let it write
#
# The pipeline guesses one token. To write a text, append the guess and walk the line again, and so on.
# Complete `write`: each time, take the largest logit of the last row. Mind that the model reads at most
# `config.context_length` tokens; of a longer text keep the end.


# %% [code] write
def write(ids, count):
    ids = list(ids)
    for _ in range(count):
        logits = observe(model, ids[-config.context_length :])["logits"]  # (L, V)
        ids.append(0)  # your turn: which token comes next?
    return ids


print(decode(write(val_ids[:16], 24)))


# %% [solution] write
def write(ids, count):
    ids = list(ids)
    for _ in range(count):
        logits = observe(model, ids[-config.context_length :])["logits"]  # (L, V)
        ids.append(int(logits[-1].argmax()))
    return ids


print(decode(write(val_ids[:16], 24)))

# %% [check] write
long = config.context_length + 3
first, given = write(val_ids[:16], 2), list(val_ids[:16])
expect(
    first[:16] == given and len(first) == 18,
    zh=f"write(ids, 2) 应当返回原来的 16 个词元再加 2 个，现在有 {len(first)} 个。",
    en=f"write(ids, 2) should return the 16 given tokens and 2 more; it returned {len(first)}.",
)
best = int(observe(model, given[-config.context_length :])["logits"][-1].argmax())
expect(
    len(first) > 16 and first[16] == best,
    zh=f"接在后面的第一个词元应当是 {best} 号（最后一行 logits 最大的那个）。"
    "如果你用的是整张表的 argmax，记得先取最后一行：logits[-1]。",
    en=f"The first new token should be number {best}, the largest logit of the last row. "
    "If you took argmax of the whole table, take the last row first: logits[-1].",
)
expect(
    len(write(val_ids[:long], 1)) == long + 1,
    zh="读入比上下文更长的文本时，前面的词元也要留在结果里；只有送进模型的那一份才截短。",
    en="A text longer than the context is to stay whole in the result; only what the model reads is cut.",
)

# %% [md zh] lens-why
# ## 中途就能读
#
# 每一站的形状都是 $(L, d)$，那么不等走完，在每个块之后就接上输出层，会读到什么？
# 越往后，读出的损失大体上越低：块在把猜测一点点改好，而且它们说的是**同一种语言**。
# 偶尔有一层读出来没有变好，那也不奇怪：它写下的东西是给后面的块用的，还没到输出层读得懂的时候。
# 这条从头通到尾的主干叫**残差流**，它为什么能这样，要到 [06.5](/lesson/06.5) 才讲。

# %% [md en] lens-why
# ## Reading before the end
#
# Every stop has the shape $(L, d)$. So what if we do not wait for the end, and put the output layer
# behind each block? By and large the loss read so falls from layer to layer: the blocks improve the
# guess, and all of them speak **the same language**. Where one block brings no gain, what it wrote is
# for later blocks to use, and not yet for the output layer to read. This line that runs from start to
# end is called the **residual stream**; why it can be read so is the matter of
# [06.5](/lesson/06.5).

# %% [code] lens
rows = windows(val_ids, min(48, config.context_length), 8)  # (8, T + 1)
seen = observe(model, rows[:, :-1])
losses = []
for name in ["embedding", *(f"block.{i}.output" for i in range(N))]:
    h = seen[name]
    if config.final_norm:
        h = reference.norm(config, reference.part(weights, "final_norm"), h)
    scores = h @ W_U.T + b_U
    chances = reference.softmax(scores)
    right = np.take_along_axis(chances, rows[:, 1:, None], axis=-1)
    losses.append(-np.log(right).mean())
    print(f"{name:16} {losses[-1]:.2f}")
plot({"loss": losses}, x=range(N + 1), xlabel="blocks passed", ylabel="loss")

# %% [quiz] stages
# kind = "order"
# question.zh = "把流水线排好。"
# question.en = "Put the pipeline in order."
# [[items]]
# zh = "分词：文本变成编号"
# en = "Tokenize: text to ids"
# feedback.zh = "后面的一切都只认编号。"
# feedback.en = "All that follows knows ids alone."
# [[items]]
# zh = "词元嵌入加位置嵌入"
# en = "Token embedding plus position embedding"
# feedback.zh = "从这里起形状就是 $(L, d)$。"
# feedback.en = "From here on the shape is $(L, d)$."
# [[items]]
# zh = "$N$ 个块"
# en = "$N$ blocks"
# feedback.zh = "形状不变，内容越来越有用。"
# feedback.en = "The shape stays; the content grows more useful."
# [[items]]
# zh = "最后一次归一化"
# en = "The final norm"
# feedback.zh = "输出层读到的尺度因此是稳定的。"
# feedback.en = "It gives the output layer a steady scale to read."
# [[items]]
# zh = "线性输出层：$d$ 个特征变成 $V$ 个 logits"
# en = "The linear output layer: $d$ features to $V$ logits"
# feedback.zh = "形状变成 $(L, V)$，只剩 softmax 没做。"
# feedback.en = "The shape becomes $(L, V)$; only softmax is left."

# %% [quiz] same
# kind = "choice"
# question.zh = "GPT-3 有 96 个块。它们有什么相同？"
# question.en = "GPT-3 has 96 blocks. What do they have in common?"
# [[options]]
# zh = "结构和形状相同，权重各有一套"
# en = "Structure and shapes; each has weights of its own"
# right = true
# feedback.zh = "对。所以参数量大致与 $N$ 成正比。"
# feedback.en = "Yes, which is why the parameters grow in proportion to $N$."
# [[options]]
# zh = "权重也相同，同一个块跑 96 遍"
# en = "The weights as well: one block, run 96 times"
# right = false
# feedback.zh = "那样参数会少 96 倍。确有模型这样做（ALBERT），GPT 不是。"
# feedback.en = "That would make 96 times fewer parameters. There are models that do so (ALBERT); GPT is not one."
# [[options]]
# zh = "只有名字相同，越往后的块越宽"
# en = "Only the name; later blocks are wider"
# right = false
# feedback.zh = "宽度处处是 $d$：不然残差流没法原样加下去。"
# feedback.en = "The width is $d$ everywhere; otherwise nothing could be added to the residual stream."

# %% [quiz] values
# kind = "number"
# question.zh = "GPT-2 small 的 $d = 768$。读入 1,024 个词元时，第 7 个块输出的表里有多少个数？"
# question.en = "GPT-2 small has $d = 768$. When it reads 1,024 tokens, how many numbers are in the table that block 7 puts out?"
# answer = 786432
# expression = "1024 * preset('gpt2').d_model"
# feedback.right.zh = "对：$L \\times d$。与是第几个块无关，也与词表大小无关。"
# feedback.right.en = "Yes: $L \\times d$, whichever block it is, and whatever the vocabulary."
# feedback.wrong.zh = "块的输出是 $(L, d)$，把两个数乘起来。"
# feedback.wrong.en = "A block puts out $(L, d)$; multiply the two."

# %% [quiz] rows
# kind = "choice"
# question.zh = "训练时一次读入 $L$ 个词元，能得到几道“猜下一个”的题？"
# question.en = "In training, $L$ tokens are read at once. How many guesses of a next token does that give?"
# [[options]]
# zh = "1 道，只用最后一行"
# en = "One, from the last row"
# right = false
# feedback.zh = "采样时才只用最后一行。训练时每一行都有正确答案可比，浪费了太可惜。"
# feedback.en = "Sampling uses the last row alone. In training every row has a right answer to be compared with."
# [[options]]
# zh = "$L$ 道，每一行都猜它后面那一个"
# en = "$L$: each row guesses what follows it"
# right = true
# feedback.zh = "对，因果掩码保证每一行都没看过答案，所以一遍能出 $L$ 道题。"
# feedback.en = "Yes. The causal mask keeps the answer from each row, so one pass gives $L$ of them."
# [[options]]
# zh = "$L \\times V$ 道"
# en = "$L \\times V$"
# right = false
# feedback.zh = "$L \\times V$ 是分数的个数；每一行的 $V$ 个分数合起来才是一道题。"
# feedback.en = "$L \\times V$ is the number of scores; the $V$ scores of a row make one guess."

# %% [reading]
# [[items]]
# title = "nanoGPT"
# where = "model.py, GPT.forward"
# look.zh = "不到 20 行：`wte`、`wpe`、`h`、`ln_f`、`lm_head`，对照这一课的四步。再看它采样时为什么只算最后一行 logits。"
# look.en = "Fewer than 20 lines: `wte`, `wpe`, `h`, `ln_f`, `lm_head` are the four steps here. See also why it computes only the last row's logits when sampling."
# [[items]]
# title = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners"
# where = "2.3"
# look.zh = "“最后一个块之后再加一个归一化”只占半句话；表 2 是四种深度和宽度。"
# look.en = "The extra norm after the final block takes half a sentence; table 2 has four depths and widths."
# [[items]]
# title = "partwise, reference.py"
# where = "forward()"
# look.zh = "同一条流水线的 NumPy 版，测试要求它和 torch 的模型一致。"
# look.en = "The same pipeline in NumPy; the tests hold it equal to the torch model."
