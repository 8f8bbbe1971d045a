# %% [lesson]
# number = "06.12"
# minutes = 30
# title.zh = "损失阶梯：每个零件值多少"
# title.en = "The loss ladder: what each part buys"

# %% [md zh] why
# 前面每一课都讲了一个零件“为什么”有用。这一课问：有用多少？
#
# 办法是搭一架阶梯：每一级只在下一级的模型上加一样东西，其余一概不动，训练也相同。
# 两级验证损失之差，就是这样东西的价钱。
#
# 可是损失里还有运气：换一个随机种子，同一级的损失也会变。
# 所以真正的问题是：**这个差，是零件的功劳，还是种子的运气？**

# %% [md en] why
# Each lesson so far said why a part helps. This one asks how much.
#
# The means is a ladder: each rung adds one thing to the model below it and leaves everything else
# alone, the training included. The difference between the validation losses of two rungs is the
# price of that thing.
#
# But luck is in those losses too: with another random seed, the same rung ends elsewhere. So the
# real question is: **is a difference the part's doing, or the seed's?**

# %% [md zh] rungs
# ## 六级是什么
#
# 六级分别是什么？级是数据，不是代码：一份模型配置加一份训练配置。
# “加了什么”由程序比较相邻两级的每个字段得出，所以不可能漏说一处改动。

# %% [md en] rungs
# ## What the six rungs are
#
# What are the six rungs? A rung is data and no code: a model's settings and a training's. What is
# new on it is found by comparing every field with the rung below, so no change can go unmentioned.

# %% [code] differences
from partwise.ladder.rungs import changes, rungs
from partwise.model.parameters import count_parameters

below = None
for rung in rungs():
    print(
        f"{rung.number} {rung.name:12} {count_parameters(rung.model):10,} parameters"
    )
    for change in changes(below, rung):
        print(f"     {change}")
    below = rung

# %% [md zh] rungs-read
# 仔细看，有几级并不“纯”：
#
# - 第 2 级同时加了多头和输出投影：拼起来的头要有一个矩阵送回残差流的空间。
# - 第 3 级的前馈层很窄，32 → 32，只有一个矩阵；四倍宽的那种到第 4 级才来。
# - 第 4 级一次加了三样：残差连接、三个块、四倍宽。所以 2.24 → 2.08 不能全记在残差账上。
#   要单独给残差定价，得训练一个“第 4 级减去残差”，后面就做。
# - 第 6 级改了七个字段，是“放大”，不是一个零件。

# %% [md en] rungs-read
# Look closely: some rungs are not pure.
#
# - Rung 2 adds several heads and the output projection together: joined heads need a matrix back
#   into the residual stream's space.
# - Rung 3's feed-forward layer is narrow, 32 to 32, a single matrix; the fourfold width arrives
#   with rung 4.
# - Rung 4 adds three things at once: residual connections, three blocks, fourfold width. So 2.24 to
#   2.08 is not the residual connection's alone. To price that, one must train rung 4 without it,
#   which we shall.
# - Rung 6 changes seven fields. It is scaling up, and not one part.

# %% [widget] live
# name = "LadderLive"
# label.zh = "实况阶梯：开始、观看、停止、比较；虚线是公开发表的数值，只作参考"
# label.en = "The ladder, live: start, watch, stop, compare; dashed lines are published values, for reference only"

# %% [md zh] seeds
# ## 实测的损失
#
# 第 1 至 5 级在你的电脑上各要几秒到几十秒，不妨现在就开始，边跑边往下读。
#
# 下面是我们用 `partwise ladder --seeds 3` 量到的验证损失（莎士比亚小语料，每级 5000 步）。
# 每行一级，每列一个种子。

# %% [md en] seeds
# ## Losses as measured
#
# Rungs 1 to 5 take seconds each, up to a minute on a slow machine. Start them now and read on.
#
# These are the validation losses that we measured with `partwise ladder --seeds 3` (tiny
# Shakespeare, 5,000 steps a rung): a row for each rung, a column for each seed.

# %% [code] losses
losses = np.array(
    [
        [2.3949, 2.4005, 2.4060],  # 1 head
        [2.2780, 2.2512, 2.2623],  # 2 heads
        [2.2416, 2.2430, 2.2666],  # 3 feedforward
        [2.0918, 2.0817, 2.0766],  # 4 residual
        [2.0620, 2.0649, 2.0725],  # 5 layernorm
    ]
)
print("mean", losses.mean(axis=1).round(3))
print("sd  ", losses.std(axis=1, ddof=1).round(3))
print("step", np.diff(losses.mean(axis=1)).round(3))

# %% [md zh] paired
# ## 成对的差
#
# 同一级换种子，损失变动约 0.01；而 2 → 3 级只降了 0.013。这一步可信吗？
#
# 先把能消掉的运气消掉。两级用同一个种子，就在每一步读同样的文字，
# 于是**逐个种子相减**，“这个种子的批次碰巧容易”就被减掉了。得到 $n$ 个差 $d_i$，取平均。

# %% [md en] paired
# ## Paired differences
#
# Another seed moves a rung by about 0.01, and the step from 2 to 3 is 0.013. Can it be believed?
#
# First remove what luck can be removed. With the same seed, two rungs read the same text at every
# step. So **subtract seed by seed**: that this seed's batches happened to be easy cancels out.
# There are $n$ differences $d_i$; take their mean.

# %% [formula] mean
# latex = 'm = \frac{1}{n} \sum_{i=1}^{n} d_i'
# code = "mean"
# names = {m = "m", n = "n", d_i = "d[i - 1]"}
# caption.zh = "成对差的平均"
# caption.en = "Mean of the paired differences"

# %% [code] mean
d = losses[2] - losses[1]
n = len(d)
m = d.sum() / n
print(d.round(4), m.round(4))

# %% [md zh] error
# 三个差的平均本身还有多大误差？看这几个差彼此有多散：标准差 $s$ 除以 $\sqrt n$，叫标准误。
# 种子多四倍，误差才减半。

# %% [md en] error
# How far off may the mean of three differences be? That shows in how far they are from each other:
# their standard deviation $s$ over $\sqrt n$, the standard error. To halve it takes four times the
# seeds.

# %% [formula] standard-error
# latex = 'E = \frac{s}{\sqrt{n}}'
# code = "standard-error"
# names = {E = "E", s = "s", n = "n"}
# caption.zh = "平均值的标准误；s 以 n − 1 为分母"
# caption.en = "Standard error of the mean; s has n − 1 below"

# %% [code] standard-error
s = d.std(ddof=1)
E = s / np.sqrt(n)
t = 4.303  # 97.5 % point of Student's t with 2 degrees of freedom
print(f"{m:.4f} ± {E:.4f}; 95 % interval {m - t * E:.4f} … {m + t * E:.4f}")

# %% [md zh] exercise
# ## 说得清还是说不清
#
# 区间里有 0：三个种子说不清第 3 级有没有用。
#
# **练习**：写 `judge(before, after)`，返回 95% 区间的两端。
# 现在的写法把两组损失当成互不相干的，丢掉了“同一个种子”这条信息。

# %% [md en] exercise
# ## Telling or not telling
#
# The interval holds 0: three seeds cannot tell whether rung 3 helps.
#
# **Exercise**: write `judge(before, after)`, which returns both ends of the 95 % interval. As it
# stands it treats the two rows as unrelated and throws away which seed each loss belongs to.

# %% [code] judge
from partwise.ladder.statistics import t_quantile


def judge(before, after):
    n = len(before)
    m = after.mean() - before.mean()
    error = np.sqrt(before.var(ddof=1) / n + after.var(ddof=1) / n)
    half = t_quantile(0.975, n - 1) * error
    return m - half, m + half


for rung in range(1, 5):
    low, high = judge(losses[rung - 1], losses[rung])
    print(
        f"{rung} -> {rung + 1}: {low:+.3f} … {high:+.3f}",
        "noise" if low < 0 < high else "",
    )

# %% [solution] judge
from partwise.ladder.statistics import t_quantile


def judge(before, after):
    d = after - before
    half = t_quantile(0.975, len(d) - 1) * d.std(ddof=1) / np.sqrt(len(d))
    return d.mean() - half, d.mean() + half


for rung in range(1, 5):
    low, high = judge(losses[rung - 1], losses[rung])
    print(
        f"{rung} -> {rung + 1}: {low:+.3f} … {high:+.3f}",
        "noise" if low < 0 < high else "",
    )

# %% [check] judge
easy = np.array([2.0, 2.5, 3.0])
low, high = judge(easy, easy - 0.1)
expect(
    abs((low + high) / 2 + 0.1) < 1e-9,
    zh="区间的中点应是平均的成对差 after − before。",
    en="The middle of the interval should be the mean paired difference, after − before.",
)
expect(
    high - low < 1e-6,
    zh="每个种子都恰好降了 0.1，差就毫无散布，区间宽度应为 0。先逐个种子相减，再求标准差。",
    en="Every seed fell by exactly 0.1, so the differences do not scatter and the interval has no "
    "width. Subtract seed by seed first, then take the standard deviation.",
)
low, high = judge(losses[1], losses[2])
expect(
    abs(low + 0.0651) < 5e-4 and abs(high - 0.0382) < 5e-4,
    zh="2 → 3 级的区间应是 −0.065 到 0.038：t 取 n − 1 个自由度，标准差用 ddof=1。",
    en="The interval of step 2 to 3 is −0.065 to 0.038: t with n − 1 degrees of freedom, and the "
    "standard deviation with ddof=1.",
)

# %% [md zh] eight
# 三个种子时，2 → 3 和 4 → 5 都淹没在噪声里。种子加到八个，我们量到：
#
# | 一步 | 成对差 ± 标准误 |
# |---|---|
# | 1 → 2 多头 | −0.130 ± 0.004 |
# | 2 → 3 前馈层 | −0.019 ± 0.005 |
# | 3 → 4 残差、三块、四倍宽 | −0.167 ± 0.005 |
# | 4 → 5 LayerNorm | −0.020 ± 0.003 |
#
# 八个种子的 $t$ 是 2.36，四步都不再含 0：前馈层和 LayerNorm 确实有用，只是在这么小的模型上用处不大。
# **“说不清”和“没有用”是两回事。**
#
# 成对相减也不保证区间变窄：把练习的两种写法都跑一遍，1 → 2 级成对的区间反而略宽。
# 相减消掉的是批次的运气；两级形状不同，初始权重各抽各的，那份运气还在。

# %% [md en] eight
# With three seeds, 2 to 3 and 4 to 5 both drown in noise. With eight seeds we measured:
#
# | step | paired difference ± standard error |
# |---|---|
# | 1 to 2, several heads | −0.130 ± 0.004 |
# | 2 to 3, feed-forward | −0.019 ± 0.005 |
# | 3 to 4, residual, three blocks, fourfold | −0.167 ± 0.005 |
# | 4 to 5, LayerNorm | −0.020 ± 0.003 |
#
# For eight seeds $t$ is 2.36, and no interval holds 0 any more: feed-forward and LayerNorm do help,
# though not by much in a model this small. **"Cannot tell" and "does not help" are two findings.**
#
# Pairing does not promise a narrower interval either: run both versions of the exercise, and for
# step 1 to 2 the paired one is a little wider. What cancels is the luck of the batches; rungs of
# different shapes draw different first weights, and that luck stays.

# %% [md zh] remove
# ## 现在拿掉，与没有它去训练
#
# 给零件定价还有第二种办法：不重新训练，直接把训练好的模型里那个零件关掉。两种办法问的不是一回事：
#
# - **现在拿掉**：这个模型有多依赖它？别的零件是围着它长成的，拿掉后无人补位。
# - **没有它去训练**：没有它，别的零件能补上多少？
#
# 下面用第 4 级的形状各训练 300 步，两个种子，约需 5 至 10 秒。

# %% [md en] remove
# ## Remove now, or train without
#
# There is a second way to price a part: train nothing again, and switch it off in the trained
# model. The two ways ask different things:
#
# - **Remove it now**: how much does this model lean on it? The other parts grew up around it, and
#   nothing steps in.
# - **Train without it**: how much can the other parts make up for?
#
# The cell trains the shape of rung 4 for 300 steps, two seeds each; it takes 5 to 10 seconds.

# %% [code] price
from dataclasses import replace

import torch

from partwise.ladder.knockout import silenced
from partwise.model.presets import preset

letters = sorted(set(text))
ids = torch.tensor([letters.index(letter) for letter in text])
cut = int(0.9 * len(ids))
base = replace(preset("ladder-4"), vocab_size=len(letters))


def batch(rng, low, high, size):
    rows = rng.integers(low, high - 9, size)[:, None] + np.arange(9)
    return ids[rows][:, :-1], ids[rows][:, 1:]


def loss_of(model, x, y):
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def train(config, seed, steps=300):
    torch.manual_seed(seed)
    model, rng = pw.GPT(config), np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, *batch(rng, 0, cut, 32)).backward()
        optimizer.step()
    return model


@torch.no_grad()
def judge_model(model):
    return loss_of(
        model, *batch(np.random.default_rng(0), cut, len(ids), 1000)
    ).item()


for seed in (1, 2):
    whole = train(base, seed)
    here = judge_model(whole)
    with silenced(whole, "feedforward"):
        removed = judge_model(whole) - here
    without = judge_model(
        train(replace(base, feedforward="none", feedforward_output=True), seed)
    )
    print(f"seed {seed}: whole {here:.2f}, removed now {removed:+.2f}, ", end="")
    print(f"trained without {without - here:+.2f}")

# %% [check] price
expect(
    removed > without - here,
    zh="通常“现在拿掉”的代价大得多；若不是，请恢复这一格的步数再跑。",
    en="Removing now usually costs far more; if not, restore this cell's number of steps.",
)

# %% [md zh] price-read
# “现在拿掉”的代价大得多。论文里的“消融实验”多指后一种：去掉零件，**重新训练**。
# 读到“去掉 X 损失涨了多少”时，先问是哪一种，再问用了几个种子。
#
# 命令行里两种都有：
#
# `partwise ladder --only 4 --without residual --seeds 3`（没有它去训练）
#
# `partwise ladder --only 5 --knock-out`（现在拿掉）

# %% [md en] price-read
# Removing now costs far more. An "ablation" in a paper mostly means the other: take the part out and
# **train again**. Where you read that removing X costs so much, ask which was done, and with how
# many seeds.
#
# The command line has both:
#
# `partwise ladder --only 4 --without residual --seeds 3` (train without)
#
# `partwise ladder --only 5 --knock-out` (remove now)

# %% [widget] knockout
# name = "Knockout"
# label.zh = "在你的模型上逐个关掉零件，看损失"
# label.en = "Silence the parts of your own model one by one and see the loss"

# %% [md zh] print
# ## 两张小抄
#
# 最后是两张可以打印的小抄：一张记改动、损失与零件，一张用一句话记住每个概念。

# %% [md en] print
# ## Two sheets
#
# Last, two sheets to print: one of changes, losses and parts, one with a sentence for each concept.

# %% [widget] sheets
# name = "CheatSheets"
# source = "Karpathy, 2023, Let's build GPT: from scratch, in code, spelled out"
# label.zh = "两张小抄（可打印）"
# label.en = "Two cheat-sheets (printable)"
# [[changes]]
# loss = "2.40"
# change = {zh = "词元嵌入 + 位置嵌入 + 一个注意力头", en = "Token and position embeddings + one attention head"}
# part = {zh = "自注意力", en = "self-attention"}
# [[changes]]
# loss = "2.40 → 2.28"
# change = {zh = "4 个宽 8 的头并行，拼接，再投影", en = "Four heads of size 8 in parallel, joined, projected"}
# part = {zh = "多头注意力", en = "multi-head attention"}
# [[changes]]
# loss = "2.28 → 2.24"
# change = {zh = "注意力之后加前馈层（32 → 32，ReLU）", en = "A feed-forward layer after attention (32 to 32, ReLU)"}
# part = {zh = "前馈层", en = "feed-forward"}
# [[changes]]
# loss = "2.24 → 2.08"
# change = {zh = "三个块，x + 子层(x)，前馈层内宽 4 倍", en = "Three blocks, x + sublayer(x), fourfold inner width"}
# part = {zh = "残差连接（和深度）", en = "residual connection (and depth)"}
# [[changes]]
# loss = "2.08 → 2.06"
# change = {zh = "每个子层之前、输出层之前加 LayerNorm", en = "LayerNorm before each sublayer and before the output layer"}
# part = {zh = "LayerNorm（pre-norm）", en = "LayerNorm (pre-norm)"}
# [[changes]]
# loss = "2.06 → 1.48"
# change = {zh = "6 层、6 头、宽 384、上下文 256、dropout 0.2", en = "6 layers, 6 heads, width 384, context 256, dropout 0.2"}
# part = {zh = "规模与 dropout", en = "scale and dropout"}
# [[concepts]]
# name = {zh = "注意力", en = "Attention"}
# sentence = {zh = "每个词元向它能看见的词元提问，按匹配程度取回它们的值。", en = "Each token asks those it may see, and takes their values in proportion to how well they match."}
# [[concepts]]
# name = {zh = "多头", en = "Heads"}
# sentence = {zh = "几组互不干扰的提问同时进行，再由一个矩阵汇总。", en = "Several separate questions at once, put together by one matrix."}
# [[concepts]]
# name = {zh = "前馈层", en = "Feed-forward"}
# sentence = {zh = "交流之后各自思考：每个词元单独过同一个两层网络。", en = "Thinking after talking: each token alone goes through the same two-layer network."}
# [[concepts]]
# name = {zh = "残差连接", en = "Residual connection"}
# sentence = {zh = "子层只往残差流上加东西，梯度总有一条不经过子层的路。", en = "A sublayer only adds to the stream, so the gradient always has a way past it."}
# [[concepts]]
# name = {zh = "LayerNorm", en = "LayerNorm"}
# sentence = {zh = "把一个词元自己的特征调到均值 0、方差 1，再让模型自选尺度。", en = "Bring one token's own features to mean 0 and variance 1, then let the model choose the scale."}
# [[concepts]]
# name = {zh = "pre-norm", en = "Pre-norm"}
# sentence = {zh = "归一化放在子层入口，残差流从头到尾不被打断。", en = "Normalise at the sublayer's entrance; the stream runs through unbroken."}
# [[concepts]]
# name = {zh = "因果掩码", en = "Causal mask"}
# sentence = {zh = "第 t 个词元只看 1 到 t，所以一次前向就能算出每个位置的下一词预测。", en = "Token t sees 1 to t only, so one pass gives a prediction at every place."}
# [[concepts]]
# name = {zh = "dropout", en = "Dropout"}
# sentence = {zh = "训练时随机断开一部分联系，谁也不能只靠一条线索。", en = "In training, cut some connections at random, so that nothing can rely on one clue."}
# [[concepts]]
# name = {zh = "三个旋钮", en = "Three knobs"}
# sentence = {zh = "N 层、宽 d、h 个头：块里约 12Nd² 个参数，d/h 多在 64 到 128。", en = "N layers, width d, h heads: about 12Nd² parameters in blocks, d/h mostly 64 to 128."}
# [[concepts]]
# name = {zh = "编码器与解码器", en = "Encoder and decoder"}
# sentence = {zh = "区别只在掩码；翻译里解码器另用交叉注意力读编码器。", en = "They differ in the mask alone; in translation the decoder also reads the encoder by cross-attention."}

# %% [quiz] impure
# kind = "choice"
# question.zh = "第 3 级到第 4 级，公开发表的损失从 2.24 降到 2.08。能说“残差连接值 0.16”吗？"
# question.en = "From rung 3 to rung 4 the published loss falls from 2.24 to 2.08. Is the residual connection worth 0.16?"
# [[options]]
# zh = "能，这一级就叫 residual"
# en = "Yes, the rung is called residual"
# right = false
# feedback.zh = "名字不是证据。用 `changes` 看：还多了两个块和四倍的内宽。"
# feedback.en = "A name is no evidence. `changes` shows two more blocks and four times the inner width as well."
# [[options]]
# zh = "不能，同时变了三样，要训练“第 4 级减残差”来比"
# en = "No, three things changed; train rung 4 without the residual and compare"
# right = true
# feedback.zh = "对：`partwise ladder --only 4 --without residual --seeds 3`。"
# feedback.en = "Yes: `partwise ladder --only 4 --without residual --seeds 3`."
# [[options]]
# zh = "不能，因为只有一个种子"
# en = "No, because it is one seed"
# right = false
# feedback.zh = "种子也是问题，但 0.16 远大于种子的波动；主要的问题是三样一起变了。"
# feedback.en = "That matters too, but 0.16 is far beyond what a seed does; the main fault is that three things changed."

# %% [quiz] seeds-needed
# kind = "number"
# question.zh = "三个种子时标准误是 0.012。想降到 0.006，大约共需几个种子？"
# question.en = "With three seeds the standard error is 0.012. About how many seeds in all bring it to 0.006?"
# answer = 12
# tolerance = 0.5
# expression = "3 * (0.012 / 0.006) ** 2"
# feedback.right.zh = "对，误差按 $1/\\sqrt n$ 下降：减半要四倍的种子。"
# feedback.right.en = "Yes: the error falls as $1/\\sqrt n$, so half of it takes four times the seeds."
# feedback.wrong.zh = "误差是 $s/\\sqrt n$：要减半，$\\sqrt n$ 得翻倍，$n$ 要乘几？"
# feedback.wrong.en = "The error is $s/\\sqrt n$: to halve it, $\\sqrt n$ must double. What happens to $n$?"

# %% [quiz] noise
# kind = "many"
# question.zh = "一步的 95% 区间是 −0.05 到 +0.01。哪些说法站得住？"
# question.en = "The 95 % interval of a step is −0.05 to +0.01. Which statements stand?"
# [[options]]
# zh = "这个零件没有用"
# en = "The part does not help"
# right = false
# feedback.zh = "说不清不等于没有用：区间里也有 −0.05。"
# feedback.en = "Not telling is not the same as not helping: −0.05 is in the interval too."
# [[options]]
# zh = "用这么多种子还分不出零件和运气"
# en = "These seeds cannot tell the part from luck"
# right = true
# feedback.zh = "对，这正是“within noise”的意思。"
# feedback.en = "Yes, this is what \"within noise\" means."
# [[options]]
# zh = "多用几个种子，结论可能变得明确"
# en = "More seeds may settle it"
# right = true
# feedback.zh = "对，2 → 3 级就是这样：三个种子说不清，八个就清楚了。"
# feedback.en = "Yes, as with step 2 to 3: open with three seeds, settled with eight."
# [[options]]
# zh = "同样的结论在别的文本上也成立"
# en = "The same holds on other texts"
# right = false
# feedback.zh = "区间只谈别的种子，不谈别的文本。"
# feedback.en = "The interval speaks of other seeds, not of other texts."

# %% [quiz] which
# kind = "choice"
# question.zh = "“把一个训练好的模型第 0 层的注意力清零，损失涨了半个 nat。”这说明什么？"
# question.en = "\"With layer 0's attention set to zero, a trained model loses half a nat.\" What does that show?"
# [[options]]
# zh = "没有第 0 层注意力的模型，最好也要差半个 nat"
# en = "A model without that attention is half a nat worse at best"
# right = false
# feedback.zh = "那要重新训练才知道，而且多半好得多：别的层会补位。"
# feedback.en = "Only training would tell, and it would most likely do far better: other layers step in."
# [[options]]
# zh = "这个模型依赖它：别的零件是围着它长成的"
# en = "This model leans on it: the rest grew up around it"
# right = true
# feedback.zh = "对，“现在拿掉”量的是依赖，不是必需。"
# feedback.en = "Yes: removing now measures reliance, not need."
# [[options]]
# zh = "注意力比前馈层重要"
# en = "Attention matters more than feed-forward"
# right = false
# feedback.zh = "只量了一样，谈不上比较。"
# feedback.en = "Only one thing was measured; there is nothing to compare."

# %% [reading]
# [[items]]
# title = "Let's build GPT: from scratch, in code, spelled out"
# where = "Karpathy 2023, lecture"
# look.zh = "六个数的来源。留意每加一样东西之前，他先预测会发生什么。"
# look.en = "Where the six numbers come from. Note that he predicts what each part will do before adding it."
# [[items]]
# title = "docs/ladder.md"
# where = "partwise"
# look.zh = "“The statistics”一节写明区间的假定和它不回答的问题。"
# look.en = "The section on statistics says what the interval assumes and what it does not answer."
# [[items]]
# title = "Show Your Work: Improved Reporting of Experimental Results"
# where = "Dodge et al. 2019, sections 1 and 3"
# look.zh = "只报一个最好的数，会怎样误导读者。"
# look.en = "How a single best number misleads its reader."
