# %% [lesson]
# number = "06.10"
# minutes = 30
# title.zh = "dropout 与放大"
# title.en = "Dropout and scaling up"

# %% [md zh] why
# 第 6 级把模型放大到一千万个参数。可是训练用的文字只有一百万个字符。
# 参数比数据多十倍的模型，能把文字背下来，而背下来不等于学会。
#
# dropout 是对付这件事的老办法：训练时随机断开一部分联系。
# 这一课看它断在哪里、为什么有用、什么时候没用，然后读懂第 6 级的全部配置。

# %% [md en] why
# Rung 6 scales the model up to ten million parameters, while the text to learn from has one million
# characters. A model with ten times more parameters than data can learn the text by heart, and
# that is not the same as learning.
#
# Dropout is an old remedy: in training, cut some connections at random. This lesson looks at where
# it cuts, why that helps and when it does not, and then reads all of rung 6's settings.

# %% [code] too-many
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset

characters = 1_003_854  # nine tenths of tiny Shakespeare
for name in ("ladder-5", "ladder-6"):
    count = count_parameters(preset(name))
    print(
        f"{name}: {count:,} parameters, {count / characters:.2f} for each character of text"
    )

# %% [md zh] about-formula
# ## 掷硬币，再放大
#
# 做法：给每个数掷一次硬币，以概率 $p$ 置零，记作 $m$（0 或 1）；留下的除以 $1-p$。
# 除这一下，是为了让平均值不变：这样生成时直接关掉 dropout 就行，不必另行折算。

# %% [md en] about-formula
# ## Toss a coin, then scale up
#
# How: toss a coin for each number, and with probability $p$ set it to zero; call the coin $m$ (0 or
# 1). What is kept is divided by $1-p$. That keeps the mean what it was, so that dropout can simply
# be turned off when the model writes.

# %% [formula] inverted
# latex = 'y = \frac{m \odot x}{1 - p}'
# code = "inverted"
# names = {y = "y", m = "m", x = "x", p = "p"}
# caption.zh = "dropout（Srivastava 等，2014；除以 1 − p 的写法）"
# caption.en = "Dropout (Srivastava et al. 2014; in the form that divides by 1 − p)"

# %% [code] inverted
rng, p = np.random.default_rng(1), 0.2
x = np.array([1.0, -2.0, 0.5, 3.0])
m = rng.random((10_000, 4)) >= p  # ten thousand draws
y = m * x / (1 - p)
print("one draw ", y[0])
print("their mean", y.mean(0).round(2), "  x", x)

# %% [md zh] exercise
# **练习**：写成函数。下面的写法漏了两件事：留下的没有放大，评估时也照样丢。

# %% [md en] exercise
# **Exercise**: make it a function. As it stands two things are missing: what is kept is not scaled
# up, and it drops in evaluation as well.


# %% [code] dropout
def dropout(x, p, rng, training=True):
    kept = rng.random(x.shape) >= p
    return x * kept


# %% [solution] dropout
def dropout(x, p, rng, training=True):
    if not training:
        return x
    kept = rng.random(x.shape) >= p
    return x * kept / (1 - p)


# %% [check] dropout
ones = np.ones(200_000)
drawn = dropout(ones, 0.2, np.random.default_rng(3))
expect(
    abs(drawn.mean() - 1) < 0.01,
    zh=f"全是 1 的输入，输出的平均成了 {drawn.mean():.2f}，应仍是 1：留下的要除以 1 − p。",
    en=f"For an input of ones the mean of the output is {drawn.mean():.2f} and should stay 1:"
    " divide what is kept by 1 − p.",
)
expect(
    abs((drawn == 0).mean() - 0.2) < 0.01,
    zh=f"被丢的占 {(drawn == 0).mean():.2f}，应是 p = 0.2。",
    en=f"The share dropped is {(drawn == 0).mean():.2f} and should be p = 0.2.",
)
expect(
    np.array_equal(
        dropout(ones, 0.2, np.random.default_rng(3), training=False), ones
    ),
    zh="training=False 时应原样返回：评估和生成不能有随机性。",
    en="With training=False the input should come back as it is: no chance in evaluation.",
)

# %% [md zh] where
# ## 断在哪里
#
# 它断在哪里？第 6 级里有两处：
#
# 1. **注意力权重**：softmax 之后。丢掉一条边，就是让某个词元这一步听不见另一个词元。
# 2. **每个子层的输出**：在加回残差流**之前**。残差流本身从不丢，梯度的直路始终通着。
#
# 原论文还丢嵌入与位置之和（Vaswani 等，2017，5.4 节）；第 6 级不丢。
# 看看你的模型某个头的边：

# %% [md en] where
# ## Where it cuts
#
# Where does it cut? In rung 6 there are two places:
#
# 1. **Attention weights**, after softmax. A dropped edge means that for this step, one token cannot
#    hear another.
# 2. **Each sublayer's output**, **before** it rejoins the residual stream. The stream itself is
#    never dropped, so the gradient's straight way stays open.
#
# The original paper also drops the sum of embedding and position (Vaswani et al. 2017, section
# 5.4); rung 6 does not. Here are the edges of one head of your model:

# %% [code] edges
ids = val_ids[: min(12, config.context_length)]
A = observe(model, ids)["block.0.attention.weights"][0]
dropped = dropout(A, 0.2, np.random.default_rng(1))
show({"A": A, "dropout": dropped})
print("row sums before", A.sum(-1).round(2))
print("row sums after ", dropped.sum(-1).round(2))

# %% [md zh] edges-read
# 丢完之后，一行不再加起来等于 1，只是平均等于 1。
# 每一步断的边都不同，所以谁也不能只靠一条线索：若“上一个字符”这条边断了，还得会从更早的字符里猜。

# %% [md en] edges-read
# After dropping, a row no longer sums to 1, only on average. Each step cuts other edges, so nothing
# can rely on a single clue: with the edge to the previous character gone, the model must know how
# to guess from earlier ones.

# %% [widget] dropout-edges
# name = "DropoutEdges"
# label.zh = "断边：调 p，看哪些词元彼此听不见"
# label.en = "Drop edges: change p and see which tokens cannot hear each other"

# %% [md zh] ensemble
# ## 子网络投票
#
# 换个角度看：每掷一次硬币，就从大网络里抽出一个**子网络**。训练 dropout，就是轮流训练无数个共用权重的子网络；
# 关掉 dropout 生成，近似于让它们一起投票。
#
# “近似”能量出来：抽 $K$ 个子网络，把它们给正确词元的概率平均，与关掉 dropout 的整个网络比。

# %% [md en] ensemble
# ## Sub-networks vote
#
# Seen differently: each toss picks a **sub-network** out of the large one. Training with dropout
# trains countless sub-networks in turn, which share their weights; with dropout off, the model
# roughly lets them all vote.
#
# That "roughly" can be measured: draw $K$ sub-networks, average the probabilities that they give
# the true token, and compare with the whole network.

# %% [formula] vote
# latex = '\bar{p} = \frac{1}{K} \sum_{k=1}^{K} p_k'
# code = "vote"
# names = {"\\bar{p}" = "mean_p", K = "K", p_k = "P[k - 1]"}
# caption.zh = "K 个子网络一起投票"
# caption.en = "K sub-networks vote"

# %% [code] vote
from dataclasses import replace

import torch

thinned = pw.GPT(replace(config, dropout=0.1, attention_dropout=None))
thinned.load_state_dict(model.state_dict())
rows = torch.tensor(
    windows(tokenizer.encode(text), min(config.context_length, 48), 16)
)


@torch.no_grad()
def true_chances(net):
    chances = net(rows[:, :-1]).softmax(-1)
    return chances.gather(-1, rows[:, 1:, None]).flatten().double().numpy()


K = 24 if count_parameters(config) < 2e7 else 4  # a large model takes its time
torch.manual_seed(1)
thinned.train()
P = np.stack([true_chances(thinned) for _ in range(K)])  # (K, tokens)
mean_p = P.mean(0)
whole_p = true_chances(thinned.eval())
alone = -np.log(P).mean(1)
print(
    f"one sub-network alone: {alone.mean():.3f} on average, {alone.min():.3f} at best"
)
for k in sorted({2, 4, min(8, K), K}):
    print(f"{k:2} of them voting:   {-np.log(P[:k].mean(0)).mean():.3f}")
print(f"the whole network:    {-np.log(whole_p).mean():.3f}")

# %% [check] vote
expect(
    -np.log(mean_p).mean() <= alone.mean() + 1e-9,
    zh="投票的损失不可能高于各自损失的平均（对数是凹的）；平均的应是概率，不是损失。",
    en="A vote cannot lose more than the members do on average (the logarithm is concave); average"
    " the probabilities and not the losses.",
)

# %% [md zh] vote-read
# 投票总不比成员的平均差，这是对数的凹性保证的，不是侥幸。
#
# 要诚实地说两点。第一，“整个网络等于所有子网络的平均”只是近似：
# 只有单层 softmax 时，它才恰好是各子网络的（归一化的）几何平均（Baldi 和 Sadowski，2013）。
# 第二，随课的小模型训练时没用 dropout，子网络从没被训练过，所以单个的要差一截。
# 换一个用 dropout 训练的模型（第 6 级就是）再跑这一格，看差距变成多少。

# %% [md en] vote-read
# The vote is never worse than its members on average; that is no luck but the logarithm's concavity.
#
# Two honest remarks. First, that the whole network equals the mean of its sub-networks is an
# approximation: only for a single softmax layer is it exactly their (normalised) geometric mean
# (Baldi and Sadowski 2013). Second, the course's small model was trained without dropout, so its
# sub-networks never learned, and each alone is worse. Choose a model that was trained with dropout
# (rung 6 was), run the cell again, and see what becomes of the difference.

# %% [widget] subnetworks
# name = "Subnetworks"
# label.zh = "子网络投票：越多，越接近整个网络"
# label.en = "Sub-networks vote: the more, the closer to the whole network"

# %% [md zh] gap
# ## 训练跑在验证前面
#
# 它真能防过拟合吗？拿 3000 个字符训练一个远比数据大的模型，一次不用 dropout，一次用 0.2
# （约需 8 至 15 秒）。两种损失都在评估模式下算，免得把 dropout 的噪声算进去。

# %% [md en] gap
# ## Training runs ahead of validation
#
# Does it prevent overfitting? Train a model far larger than its data, 3,000 characters, once without
# dropout and once with 0.2 (8 to 15 seconds). Both losses are taken in evaluation mode, so that
# dropout's own noise is not counted.

# %% [code] overfit
from torch.nn.functional import cross_entropy

letters = sorted(set(text))
row = torch.tensor([letters.index(c) for c in text])
T = 32
learn, judge = row[: min(3000, len(row) // 2)], row[len(row) // 2 :][:3000]
shape = pw.ModelConfig(
    vocab_size=len(letters), context_length=T, n_layers=2, d_model=64, n_heads=4
)


@torch.no_grad()
def evaluate(net, part):
    net.eval()
    n = (len(part) - 1) // T * T
    inputs, targets = part[:n].view(-1, T), part[1 : n + 1]
    loss = cross_entropy(net(inputs).flatten(0, 1), targets).item()
    net.train()
    return loss


curves = {}
for p in (0.0, 0.2):
    torch.manual_seed(1)
    net, draws = pw.GPT(replace(shape, dropout=p)), np.random.default_rng(1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    found = []
    for step in range(300):
        at = torch.tensor(draws.integers(0, len(learn) - T, 16))[
            :, None
        ] + torch.arange(T + 1)
        loss = cross_entropy(
            net(learn[at[:, :-1]]).flatten(0, 1), learn[at[:, 1:]].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            found.append((evaluate(net, learn), evaluate(net, judge)))
    curves[f"p={p} train"], curves[f"p={p} validation"] = zip(*found, strict=True)
    gap = found[-1][1] - found[-1][0]
    print(
        f"p={p}: best validation {min(v for _, v in found):.2f}, gap at the end {gap:.2f}"
    )
plot(curves, x=range(50, 301, 50), xlabel="step", ylabel="loss")

# %% [md zh] gap-read
# 在莎士比亚上：不用 dropout 时，训练损失一路下去，验证损失先降后升，差距（gap）越拉越大；
# 用了 dropout，差距小，验证损失升得晚。
#
# 但请看**最低**的验证损失：两条差不多。在这里，及早停下与 dropout 一样好。
# dropout 换来的是“不必掐准停的时刻”，以及训练得更久、模型更大的余地，第 6 级正需要这个。

# %% [md en] gap-read
# On Shakespeare: without dropout the training loss keeps falling while the validation loss turns
# round, and the gap widens; with dropout the gap is smaller and the turn comes later.
#
# But look at the **lowest** validation losses: they are about the same. Here, stopping early is as
# good as dropout. What dropout buys is that the moment to stop need not be hit, and room for longer
# training and larger models, which is what rung 6 needs.

# %% [code] rung-six
from partwise.ladder.rungs import changes, rung

for change in changes(rung(5), rung(6)):
    print(change)
train = rung(6).train
read = train.steps * train.batch_size * rung(6).model.context_length
print(f"reads {read:,} characters: the text {read / characters:.0f} times over")

# %% [md zh] rung-six-read
# ## 读懂第 6 级
#
# 逐行读第 6 级：
#
# - 上下文 8 → 256：字符级模型从此看得见整句，而不只是半个词。
#   它值多少，可以单独量：`partwise ladder --only 6 --swap context_length=64`。
# - 宽 384、6 头：$d_k = 64$，落在 [06.9](/lesson/06.9) 说的范围里。
# - 学习率 1e-3 → 3e-4：模型越宽，通常要走得越小心。
# - dropout 0.2：因为要把同一百万字符读八十多遍。
#
# 反过来，**数据够多、每段只读一遍时，dropout 常常不用**：PaLM 预训练就没有（Chowdhery 等，2022，第 5 节）。
# 没有重复，就没得背。
#
# 训练跑在验证前面时，可以拧什么？更多的文字、更大的 dropout 或权重衰减、更小的模型、更早停下。

# %% [md en] rung-six-read
# ## Reading rung 6
#
# Rung 6 line by line:
#
# - Context 8 to 256: a character model now sees whole sentences and not half a word. What that is
#   worth can be measured alone: `partwise ladder --only 6 --swap context_length=64`.
# - Width 384, 6 heads: $d_k = 64$, within the range of [06.9](/lesson/06.9).
# - Rate 1e-3 to 3e-4: wider models mostly need smaller steps.
# - Dropout 0.2: because the same million characters are read over eighty times.
#
# Conversely, **with enough data, each piece read once, dropout is often left out**: PaLM was
# pre-trained without it (Chowdhery et al. 2022, section 5). Where nothing is repeated, there is
# nothing to learn by heart.
#
# When training runs ahead of validation, what can be turned? More text, more dropout or weight
# decay, a smaller model, an earlier stop.

# %% [code] ten-thousand
from pathlib import Path

from partwise.sampling.generate import complete

settings = pw.SampleConfig(chars=1000, count=10, temperature=0.8, seed=1)
pieces = complete(model, tokenizer, "\n", settings)
while sum(map(len, pieces)) < 10_000 and len(pieces) < 200:  # some end a text early
    pieces += complete(model, tokenizer, "\n", replace(settings, seed=len(pieces)))
Path("sample.txt").write_bytes("\n".join(pieces).encode("utf-8"))
written = Path("sample.txt").read_bytes().decode("utf-8")
known = set(text.split())
share = np.mean([word in known for word in written.split()])
print(
    f"{len(written):,} characters in sample.txt; {share:.0%} of its words occur in the text"
)
print(written[:300])

# %% [check] ten-thousand
expect(
    len(written) >= 10_000,
    zh="文件里应有一万个字符以上：10 篇，每篇 1000 个。",
    en="The file should hold ten thousand characters or more: ten pieces of 1,000.",
)

# %% [md zh] sampled
# 一万个字符写在 `sample.txt` 里。评估和生成时 dropout 是关着的，所以同一个种子每次写得一样。
# 用你自己训练的第 6 级来写：`partwise sample RUN --chars 10000 --out sample.txt`。

# %% [md en] sampled
# Ten thousand characters stand in `sample.txt`. Dropout is off in evaluation and sampling, so the
# same seed writes the same each time. With a rung 6 that you trained yourself:
# `partwise sample RUN --chars 10000 --out sample.txt`.

# %% [quiz] scale
# kind = "number"
# question.zh = "$p = 0.2$ 时，留下来的数乘以几？"
# question.en = "With $p = 0.2$, by what are the kept numbers multiplied?"
# answer = 1.25
# tolerance = 0.001
# expression = "1 / (1 - 0.2)"
# feedback.right.zh = "对，$1/(1-p)$：留下五分之四，放大四分之五。"
# feedback.right.en = "Yes, $1/(1-p)$: four fifths are kept, scaled by five fourths."
# feedback.wrong.zh = "要让平均值不变：留下的份额是 $1-p$，所以要除以它。"
# feedback.wrong.en = "The mean must stay: the share kept is $1-p$, so divide by it."

# %% [quiz] attention-weights
# kind = "choice"
# question.zh = "为什么在**注意力权重**上也用 dropout？"
# question.en = "Why use dropout on **attention weights** too?"
# [[options]]
# zh = "让词元不能总靠听同一个词元，学会从别处也找线索"
# en = "So that a token cannot always rely on hearing the same other one, and finds clues elsewhere"
# right = true
# feedback.zh = "对：断的是“谁听谁”，不是特征。"
# feedback.en = "Yes: it cuts who hears whom, not features."
# [[options]]
# zh = "让注意力矩阵变稀疏，算得更快"
# en = "To make attention sparse and faster"
# right = false
# feedback.zh = "不会更快：零照样要乘；而且每步断的都不同。"
# feedback.en = "It is no faster: zeros are multiplied too, and each step drops others."
# [[options]]
# zh = "防止看见未来"
# en = "To keep the future hidden"
# right = false
# feedback.zh = "那是因果掩码的事；掩码从不随机，也从不关掉。"
# feedback.en = "That is the causal mask, which is never random and never off."

# %% [quiz] overfit-what
# kind = "many"
# question.zh = "训练损失 0.9，验证损失 1.6，还在拉开。哪些做法对路？"
# question.en = "Training loss 0.9, validation 1.6, still parting. What could help?"
# [[options]]
# zh = "找更多文字"
# en = "More text"
# right = true
# feedback.zh = "最根本的办法。"
# feedback.en = "The remedy at the root."
# [[options]]
# zh = "加大 dropout"
# en = "More dropout"
# right = true
# feedback.zh = "对，验证损失升得更晚；训练损失会变差，那没关系。"
# feedback.en = "Yes: the validation loss turns later. The training loss gets worse, which is fine."
# [[options]]
# zh = "再训练久一点"
# en = "Train longer"
# right = false
# feedback.zh = "已经在拉开了，越久背得越多。"
# feedback.en = "They are parting already; longer means more by heart."
# [[options]]
# zh = "退回验证损失最低的检查点"
# en = "Go back to the checkpoint with the lowest validation loss"
# right = true
# feedback.zh = "对，Partwise 自动留着它（best）。"
# feedback.en = "Yes; Partwise keeps that one (best)."

# %% [quiz] random-eval
# kind = "choice"
# question.zh = "同一段文字评估两次，损失不同。最可能是？"
# question.en = "The same text evaluated twice gives two losses. What is likeliest?"
# [[options]]
# zh = "忘了 `model.eval()`，dropout 还开着"
# en = "`model.eval()` was forgotten and dropout is on"
# right = true
# feedback.zh = "对。评估模式下没有随机的东西。"
# feedback.en = "Yes. Nothing is random in evaluation mode."
# [[options]]
# zh = "浮点误差"
# en = "Rounding"
# right = false
# feedback.zh = "同一台机器同样的计算，舍入也相同；差别不会大到看得见。"
# feedback.en = "The same arithmetic on the same machine rounds alike; it would not show."
# [[options]]
# zh = "权重衰减在起作用"
# en = "Weight decay at work"
# right = false
# feedback.zh = "权重衰减只在优化器走一步时起作用，评估不走步。"
# feedback.en = "It acts when the optimizer moves, and evaluation does not move."

# %% [reading]
# [[items]]
# title = "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"
# where = "Srivastava et al. 2014, sections 1, 4 and 7.5"
# look.zh = "7.5 节把“关掉 dropout”与“真的平均很多子网络”作了比较，正是本课的实验。"
# look.en = "Section 7.5 compares turning dropout off with really averaging many sub-networks: this lesson's experiment."
# [[items]]
# title = "Understanding Dropout"
# where = "Baldi and Sadowski 2013, sections 2 to 4"
# look.zh = "什么情况下平均是精确的，什么情况下只是近似。"
# look.en = "When the mean is exact, and when it is an approximation."
# [[items]]
# title = "nanoGPT"
# where = "Karpathy 2022, model.py"
# look.zh = "找出全部 dropout 的位置，与第 6 级比较：多了哪一处？"
# look.en = "Find every dropout and compare with rung 6: which place is added?"
