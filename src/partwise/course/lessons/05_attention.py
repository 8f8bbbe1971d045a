# %% [lesson]
# number = "05"
# minutes = 25
# title.zh = "注意力，再走一遍"
# title.en = "Attention, recalled"

# %% [md zh] why
# 语言模型只做一件事：读到这里，猜下一个词元。
# 这一课从“什么都不会”出发，一步一步走到一个注意力头，它就是后面那架阶梯的第一级。
#
# 先定一把尺子。
# 模型给正确答案的概率是 $p$，就罚它 $-\ln p$，对所有位置求平均，这就是**损失**，单位是 nat。
# 猜得越准，损失越低。先看看不用神经网络能做到多少。

# %% [md en] why
# A language model does one thing: having read this far, it guesses the next token.
# This lesson starts from knowing nothing and goes, step by step, to one attention head: the first
# rung of the ladder that the later lessons climb.
#
# First, a ruler. If the model gave the right answer the probability $p$, it pays $-\ln p$; the mean
# over all places is the **loss**, in nats. Better guesses, lower loss. Let us see how far one gets
# without any neural network.

# %% [code] baselines
V = config.vocab_size
singles = np.bincount(train_ids, minlength=V) + 0.1
pairs = np.full((V, V), 0.1)
np.add.at(pairs, (train_ids[:-1], train_ids[1:]), 1)

p_single = singles / singles.sum()
p_pair = pairs / pairs.sum(axis=1, keepdims=True)
before, after = val_ids[:-1], val_ids[1:]
print(f"all tokens alike:       {np.log(V):.2f}")
print(f"how common each is:     {-np.log(p_single[after]).mean():.2f}")
print(f"given the one before:   {-np.log(p_pair[before, after]).mean():.2f}")
print(f"the model chosen above: {val_loss():.2f}")

# %% [md zh] table
# ## 背表，还是取用
#
# 第三行是一张表：前一个词元是什么，后面各词元各有多大机会。
# 它只看一个词元，已经好了许多。
# 那就再多看几个？看两个要 $V^2$ 行，看八个要 $V^8$ 行，没有哪篇文本填得满这张表。
#
# 所以不能背表，要学会**从前文里取出有用的东西**。最笨的取法是：把前面所有词元的特征平均一下。

# %% [md en] table
# ## A table, or a look back
#
# The third line is a table: given the token before, how likely is each one after it? It looks at a
# single token and already does much better. So look at more? Two tokens need $V^2$ rows, eight need
# $V^8$; no text can fill such a table.
#
# A table learned by heart will not do. The model must learn to **take what is useful out of what
# came before**. The crudest way: average the features of all tokens so far.

# %% [code] average
T, d = 6, 4
rng = np.random.default_rng(5)
x = rng.normal(size=(T, d))  # (T, d): one row a token

A = np.tril(np.ones((T, T)))
A = A / A.sum(axis=1, keepdims=True)
y = A @ x  # row t: the mean of rows 0..t
print(A.round(2))
assert np.allclose(y[2], x[:3].mean(axis=0))

# %% [md zh] average-read
# 平均就是乘一个矩阵：第 $t$ 行写着“第 $t$ 个词元从谁那里取多少”，每行的和是 1。
# 右上角全是 0，因为那是未来，猜下一个词元时不许偷看。
#
# 平均的毛病也一目了然：一视同仁。
# 读到 `th`，最有用的是刚才的 `t`；读到引号，有用的也许是很久以前的另一个引号。
# 份额应该由内容决定，这就是**注意力**。

# %% [md en] average-read
# Averaging is multiplying by a matrix: row $t$ says how much token $t$ takes from whom, and each row
# adds up to 1. The upper right corner is zero because that is the future, and peeking is not allowed.
#
# The fault of an average is as plain: it treats all alike. After `th` the useful one is the `t` just
# now; after a quotation mark it may be the other mark, long ago. The shares should depend on the
# content. That is **attention**.

# %% [md zh] qkv
# ## 查询、键、值
#
# 每个词元拿自己的特征 $x$ 算出三样东西：
#
# - **查询** $q$：我在找什么；
# - **键** $k$：我这里有什么；
# - **值** $v$：问到我，我就交出这个。
#
# 查询与键的点积就是匹配分数。三个矩阵 $W_Q, W_K, W_V$ 都是学出来的。

# %% [md en] qkv
# ## Query, key, value
#
# From its features $x$, every token computes three things:
#
# - a **query** $q$: what am I looking for;
# - a **key** $k$: what do I have;
# - a **value** $v$: this is what I hand over when asked.
#
# The dot product of a query and a key is how well they match. The three matrices $W_Q, W_K, W_V$ are
# learned.

# %% [formula] scores
# latex = 'S = \frac{Q K^\top}{\sqrt{d_k}}'
# code = "scores"
# names = {S = "S", Q = "Q", K = "K", d_k = "d_k"}
# caption.zh = "分数：第 t 行是词元 t 的查询与每个键的点积"
# caption.en = "Scores: row t holds the products of token t's query with every key"

# %% [code] scores
d_k = 3
W_Q, W_K, W_V = (rng.normal(size=(d, d_k)) for _ in range(3))
Q, K, V = x @ W_Q, x @ W_K, x @ W_V  # (T, d_k) each
S = Q @ K.T / math.sqrt(d_k)  # (T, T)
print(S.round(2))

# %% [md zh] root-why
# 为什么要除以 $\sqrt{d_k}$？不是背公式，做个实验：
# 让查询和键的每个特征都是标准正态，看点积有多大，再看 softmax 之后最大的一份占多少。

# %% [md en] root-why
# Why divide by $\sqrt{d_k}$? Do not take it on trust, try it: let every feature of queries and keys
# be standard normal, and look at how large the products are, and how much of a softmax over 16 keys
# goes to the largest.


# %% [code] root
def softmax(s):
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


for width in (1, 16, 64, 256):
    q, k = rng.normal(size=(500, width)), rng.normal(size=(500, 16, width))
    dots = (k @ q[:, :, None])[..., 0]  # (500, 16)
    raw = softmax(dots).max(-1).mean()
    scaled = softmax(dots / math.sqrt(width)).max(-1).mean()
    print(f"d_k {width:3}: spread {dots.std():5.2f}, ", end="")
    print(f"largest share {raw:.2f}, scaled {scaled:.2f}")

# %% [md zh] root-read
# $d_k$ 个独立的积相加，标准差是 $\sqrt{d_k}$。
# 不除的话，头越宽，softmax 越像“赢家通吃”，而在那里 softmax 几乎是平的，梯度接近 0，学不动。
# 除以 $\sqrt{d_k}$ 之后，不论头多宽，一开始都温和地看着大家。
#
# ## 练习：遮住未来
#
# 只差最后一步：掩码 $M$ 加在分数上，让每个词元只看得见自己和前面的词元。
# 下面的 $M$ 全是 0，什么也没遮住。请改好：不许看的格子里应当填什么数，softmax 之后的份额才正好是 0？

# %% [md en] root-read
# A sum of $d_k$ independent products has the standard deviation $\sqrt{d_k}$. Undivided, a wider head
# means that the winner takes it all, and there softmax is nearly flat: the gradient is close to 0 and
# nothing is learned. Divided by $\sqrt{d_k}$, a head of any width starts out looking at everyone,
# gently.
#
# ## Exercise: hide the future
#
# One step is missing: a mask $M$ is added to the scores, so that each token sees itself and those
# before it. The $M$ below is all zeros and hides nothing. Mend it: which number must stand in a
# forbidden cell, for its share to be exactly 0 after softmax?

# %% [formula] head
# latex = 'Y = \operatorname{softmax}(S + M)\, V'
# code = "head"
# names = {Y = "Y", S = "S", M = "M", V = "V"}
# caption.zh = "一个头：加上掩码，每行变成份额，按份额混合各个值"
# caption.en = "One head: add the mask, turn each row into shares, mix the values by them"

# %% [code] head
M = np.zeros((T, T))  # your turn
A = softmax(S + M)
Y = A @ V  # (T, d_k)
print(A.round(2))

# %% [solution] head
M = np.where(np.tril(np.ones((T, T))) == 1, 0.0, -np.inf)
A = softmax(S + M)
Y = A @ V  # (T, d_k)
print(A.round(2))

# %% [check] head
if expect(
    np.shape(M) == (T, T),
    zh=f"M 的形状是 {np.shape(M)}，应当和 S 一样是 {(T, T)}：每个查询、每个键一格。",
    en=f"M has the shape {np.shape(M)}; it should be that of S, {(T, T)}: one cell a query and key.",
):
    seen = A[np.triu_indices(T, 1)].max()
    expect(
        seen == 0,
        zh=f"有词元看见了未来：对角线右上方最大的份额是 {seen:.2f}，应当是 0。"
        "要在 softmax 之前给那些分数加上 -np.inf。",
        en=f"Some token sees the future: above the diagonal the largest share is {seen:.2f} and should "
        "be 0. Add -np.inf to those scores, before softmax.",
    )
    expect(
        np.allclose(A.sum(axis=-1), 1),
        zh="有的行加起来不是 1。不要在 softmax 之后把份额改成 0，那样剩下的就不够 1 了。",
        en="Some rows do not add up to 1. Do not zero shares after softmax: the rest falls short of 1.",
    )
    expect(
        (np.tril(A) > 0).sum() == T * (T + 1) // 2,
        zh="过去和自己也被挡住了一些。下三角连同对角线都应该看得见。",
        en="Some of the past, or the token itself, is hidden. The lower triangle and the diagonal are "
        "to be seen.",
    )

# %% [md zh] leak-why
# ## 有没有偷看，测了才知道
#
# 怎么知道真的没有偷看？不要读代码，要**测**：改掉最后一个词元，前面各行的输出一个数都不该变。
# 下面对一个真正的模型也做同样的测试：它读的是你自己的文本。

# %% [md en] leak-why
# ## Does anybody peek? Measure
#
# How do you know that nobody peeks? Do not read the code, **measure**: change the last token, and
# not one number of the earlier outputs may move. The cell then does the same to a real model, on your
# own text.


# %% [code] leak
def one_head(x):
    Q, K, V = x @ W_Q, x @ W_K, x @ W_V
    mask = np.where(np.tril(np.ones((len(x), len(x)))) == 1, 0.0, -np.inf)
    return softmax(Q @ K.T / math.sqrt(d_k) + mask) @ V


changed = x.copy()
changed[-1] = 100.0
moved = np.abs(one_head(changed) - one_head(x)).max(axis=-1)
print("one head:", moved.round(3))

ids = val_ids[: min(12, config.context_length)]
other = ids.copy()
other[-1] = (other[-1] + 1) % config.vocab_size
after, before = observe(model, other)["logits"], observe(model, ids)["logits"]
moved = np.abs(after - before).max(axis=-1)
print("model:   ", moved.round(3))

# %% [md zh] own-why
# ## 训练好的头在看谁
#
# 再看看训练好的头在看谁。
# 下图是你所选模型第 1 层的各个头，读的是同一段文本；行是提问的词元，列是被看的词元。
# 常能看到三种：看自己或前一个词元的斜线；集中在某个换行或空格上的竖条；不挑不拣的一片。

# %% [md en] own-why
# ## Whom trained heads look at
#
# And whom do trained heads look at? Here are the heads of the chosen model's first layer, all reading
# the same text; a row asks, a column is looked at. Three kinds are common: a diagonal (oneself or the
# token before), a vertical stripe (some newline or space), and an even haze.

# %% [code] own
ids = val_ids[: min(20, config.context_length)]
seen = observe(model, ids)
A = seen["block.0.attention.weights"]  # (heads, T, T)
labels = [decode([i]) for i in ids]
show({f"head {h}": A[h] for h in range(min(4, len(A)))}, rows=labels, cols=labels)

# %% [widget] mask
# name = "Mask"
# label.zh = "开关掩码，换上你自己的文本，看份额和损失怎样变"
# label.en = "Switch the mask, bring your own text, watch shares and loss change"

# %% [md zh] order-why
# ## 盲点：顺序
#
# 注意力还有一个盲点：**它不知道顺序**。
# 份额只由内容决定，把前面的词元打乱，最后一个词元得到的混合一点不变。

# %% [md en] order-why
# ## The blind spot: order
#
# Attention has a blind spot: **it does not know order**. Shares depend on content alone, so if the
# earlier tokens are shuffled, the last token receives the very same mixture.

# %% [code] order
shuffled = np.concatenate([rng.permutation(x[:-1]), x[-1:]])
print("last row before:", one_head(x)[-1].round(3))
print("last row after: ", one_head(shuffled)[-1].round(3))
assert np.allclose(one_head(x)[-1], one_head(shuffled)[-1])

# %% [md zh] ladder
# 所以位置要另外告诉它：最简单的办法是给每个位置也学一行嵌入，加在词元的嵌入上，下一课再讲。
#
# **阶梯的第一级**就是这些：词元嵌入 + 位置嵌入、一个宽 32 的头、一个输出层，上下文只有 8 个词元。
# 在 tiny Shakespeare 上公开的验证损失是 2.40（Karpathy，2023）。
# 作个对照：拿同一批剧本的全文数出来的“前一个词元的表”，验证损失是 2.49。好了一点，但只好一点。
# 后面每一课加一个零件，[阶梯](/ladder)会告诉你每个零件值多少。

# %% [md en] ladder
# So position must be told separately. The simplest way is to learn a row for every place as well and
# add it to the token's own; the next lesson does that.
#
# **The ladder's first rung** is just this: token and position embeddings, one head of width 32, an
# output layer, and a context of 8 tokens. On tiny Shakespeare its published validation loss is 2.40
# (Karpathy, 2023). For comparison, a table of pairs counted over the whole of the same plays comes to
# 2.49: better, but only a little. Each of the following lessons adds one part, and
# [the ladder](/ladder) prices it.

# %% [quiz] root-quiz
# kind = "choice"
# question.zh = "把 $d_k$ 从 16 改成 64，却忘了把除数从 4 改成 8。训练刚开始时会怎样？"
# question.en = "You raise $d_k$ from 16 to 64 and forget to raise the divisor from 4 to 8. What happens at the start of training?"
# [[options]]
# zh = "分数的标准差变成 2，注意力更集中，softmax 的梯度更小"
# en = "Scores have a standard deviation of 2; attention is sharper and softmax's gradient smaller"
# right = true
# feedback.zh = "对。64 个积之和的标准差是 8，除以 4 还剩 2。"
# feedback.en = "Yes. A sum of 64 products has a standard deviation of 8; divided by 4, it is 2."
# [[options]]
# zh = "没有区别，$W_Q$ 会自己学小一点"
# en = "No difference: $W_Q$ will simply learn to be smaller"
# right = false
# feedback.zh = "训练久了也许能补回来，但问题出在一开始：越集中，梯度越小，要补也补得慢。"
# feedback.en = "In the long run perhaps. But the trouble is at the start: the sharper the softmax, the smaller the gradient that would mend it."
# [[options]]
# zh = "每行的和变成 2"
# en = "Each row adds up to 2"
# right = false
# feedback.zh = "不会。不管分数多大，softmax 之后每行的和总是 1。"
# feedback.en = "It cannot: however large the scores, after softmax every row adds up to 1."

# %% [quiz] count
# kind = "number"
# question.zh = "上下文是 8 个词元，用因果掩码。64 个份额里有多少个不是 0？"
# question.en = "A context of 8 tokens under the causal mask: how many of the 64 shares are not 0?"
# answer = 36
# expression = "int(np.tril(np.ones((8, 8))).sum())"
# feedback.right.zh = "对：1 + 2 + … + 8 = 36，略多于一半。"
# feedback.right.en = "Yes: 1 + 2 + … + 8 = 36, a little over half."
# feedback.wrong.zh = "第 $t$ 个词元能看 $t$ 个位置（包括自己），把 $t = 1$ 到 8 加起来。"
# feedback.wrong.en = "Token $t$ sees $t$ places, itself among them; add that up for $t = 1$ to 8."

# %% [quiz] zero
# kind = "choice"
# question.zh = "有人写掩码时，把未来的**分数**设成 0，而不是 $-\\infty$。会怎样？"
# question.en = "Someone writes the mask by setting the **scores** of the future to 0 instead of $-\\infty$. What happens?"
# [[options]]
# zh = "正好：0 就是不看"
# en = "That is right: 0 means not looking"
# right = false
# feedback.zh = "份额是 0 才是不看；分数是 0，$e^0 = 1$，照样分得一份。"
# feedback.en = "A *share* of 0 means not looking. A *score* of 0 gives $e^0 = 1$, and gets its share."
# [[options]]
# zh = "未来仍然分到份额，训练损失会低得可疑"
# en = "The future still gets shares, and the training loss is suspiciously low"
# right = true
# feedback.zh = "对。损失低得可疑，往往就是答案漏了出来。采样时没有未来可看，写出来的便是乱码。"
# feedback.en = "Yes. A loss that is too good often means a leak. When sampling there is no future to look at, and out comes gibberish."
# [[options]]
# zh = "程序会报错"
# en = "The program stops with an error"
# right = false
# feedback.zh = "不会报错，所以才要像上面那样去测。"
# feedback.en = "No error at all, which is why one measures as above."

# %% [quiz] true
# kind = "many"
# question.zh = "不加位置嵌入，下面哪些话是对的？"
# question.en = "Without position embeddings, which of these are true?"
# [[options]]
# zh = "打乱前面的词元，最后一个位置的输出不变（只有一层时）"
# en = "Shuffling the earlier tokens leaves the last output as it was (with one layer)"
# right = true
# feedback.zh = "对，上面刚测过。"
# feedback.en = "Yes: measured above."
# [[options]]
# zh = "注意力分不清 `ab` 和 `ba` 里谁在前"
# en = "Looking back at `ab` or `ba`, a head cannot tell which of the two came first"
# right = true
# feedback.zh = "对：对它来说前文只是一个袋子。"
# feedback.en = "Yes: to it, what came before is a bag."
# [[options]]
# zh = "因果掩码也就没用了"
# en = "The causal mask is of no use then"
# right = false
# feedback.zh = "掩码仍然挡住未来。而且它自己就泄露了一点位置：第 $t$ 个词元的袋子里有 $t$ 样东西，多层之后模型能利用这一点。"
# feedback.en = "It still hides the future. It even gives some position away: token $t$ has a bag of $t$ things, and several layers can make use of that."

# %% [reading]
# [[items]]
# title = "Vaswani et al. 2017, Attention Is All You Need"
# where = "3.2.1"
# look.zh = "公式 (1) 就是这一课；脚注 4 用一句话说明为什么除以 $\\sqrt{d_k}$，看看和我们的实验是否一致。"
# look.en = "Equation (1) is this lesson. Footnote 4 gives the reason for $\\sqrt{d_k}$ in one sentence: compare it with the experiment."
# [[items]]
# title = "nanoGPT"
# where = "model.py, CausalSelfAttention"
# look.zh = "找到 `masked_fill` 那一行：掩码存成一个缓冲区，而不是参数。"
# look.en = "Find the line with `masked_fill`: the mask is kept as a buffer and not as a parameter."
# [[items]]
# title = "partwise, reference.py"
# where = "attention()"
# look.zh = "同样的几行，但一次算所有的头。下一课起会一直用到它。"
# look.en = "The same few lines for all heads at once. We use it from the next lesson on."
