# %% [lesson]
# number = "06.6"
# minutes = 30
# title.zh = "归一化：LayerNorm、BatchNorm、RMSNorm"
# title.en = "Norms: LayerNorm, BatchNorm, RMSNorm"

# %% [md zh] why
# 残差流一路加下去，越来越大；子层却希望每次读到的尺度都差不多。归一化就站在中间。
#
# 三种归一化的算式几乎一样：减去均值，除以标准差，再乘一个学来的 $\gamma$，加一个学来的 $\beta$。
# 它们的区别全在一个问题上：**均值和标准差，是对谁求的？**

# %% [md en] why
# The residual stream is added to all the way and grows; sublayers would rather read the same scale
# every time. The norm stands in between.
#
# The three norms compute nearly the same thing: take away the mean, divide by the standard deviation,
# multiply by a learned $\gamma$, add a learned $\beta$. They differ in one question only: **the mean
# and the deviation of what?**

# %% [md zh] mean-why
# ## LayerNorm：对一个词元自己的特征
#
# 一个词元有 $d$ 个特征。先求它们的均值和方差（除以 $d$，不是 $d-1$）：

# %% [md en] mean-why
# ## LayerNorm: of one token's own features
#
# A token has $d$ features. First their mean and their variance (divided by $d$, not by $d-1$):

# %% [formula] mean
# latex = '\mu = \frac{1}{d} \sum_{j=1}^{d} x_j'
# code = "mean"
# names = {"\\mu" = "mu", d = "d", x_j = "x[:, j - 1 : j]"}
# caption.zh = "每个词元一个均值"
# caption.en = "One mean for each token"

# %% [code] mean
L, d = 4, 6
rng = np.random.default_rng(7)
x = rng.normal(
    loc=[[0.0], [5.0], [0.0], [-2.0]],
    scale=[[1.0], [1.0], [30.0], [0.1]],
    size=(L, d),
)
mu = x.mean(axis=-1, keepdims=True)  # (L, 1)
print(x.round(1))
print("means:", mu.ravel().round(2))

# %% [formula] variance
# latex = '\sigma^2 = \frac{1}{d} \sum_{j=1}^{d} (x_j - \mu)^2'
# code = "variance"
# names = {"\\sigma^2" = "var", "\\mu" = "mu", d = "d", x_j = "x[:, j - 1 : j]"}
# caption.zh = "每个词元一个方差"
# caption.en = "One variance for each token"

# %% [code] variance
var = ((x - mu) ** 2).mean(axis=-1, keepdims=True)  # (L, 1)
print("deviations:", np.sqrt(var).ravel().round(2))

# %% [formula] layernorm
# latex = 'y = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta'
# code = "layernorm"
# names = {y = "y", "\\gamma" = "gamma", "\\beta" = "beta", x = "x", "\\mu" = "mu", "\\sigma^2" = "var", "\\epsilon" = "eps"}
# caption.zh = "LayerNorm；ε 很小，只防止除以 0"
# caption.en = "LayerNorm; epsilon is tiny and only guards against dividing by 0"

# %% [code] layernorm
gamma, beta, eps = np.ones(d), np.zeros(d), 1e-5
y = gamma * (x - mu) / np.sqrt(var + eps) + beta  # (L, d)
print(y.round(2))
print(
    "the same, 100 times as large and moved by 7:",
    np.allclose(
        y,
        ((100 * x + 7) - (100 * x + 7).mean(-1, keepdims=True))
        / (100 * x).std(-1, keepdims=True),
        atol=1e-2,
    ),
)

# %% [md zh] meaning
# 四个词元的尺度相差几百倍，出来都一样大。
# 最后一行说明得更透：把 $x$ 放大 100 倍、再整体平移，结果不变。
# 所以**子层读不到残差流有多大，只读得到它的形状**。残差流尽管长，子层不受影响。
#
# $\gamma$ 和 $\beta$ 又把自由还给模型：哪些特征要放大，由学习决定。训练好的 $\gamma$ 长什么样？

# %% [md en] meaning
# Four tokens whose scales differ by hundreds, and all come out alike. The last line says more: make $x$
# 100 times as large and move it, and nothing changes. So **a sublayer cannot read how large the stream
# is, only its shape**. The stream may grow; sublayers do not feel it.
#
# $\gamma$ and $\beta$ give freedom back: which features to make larger is learned. What do trained
# $\gamma$ look like?

# %% [code] gammas
if config.norm == "none":
    print(lacking("norms"))
for name, w in weights.items():
    if "norm" in name and name.endswith("weight") and w.shape == (config.d_model,):
        print(
            f"{name:24} smallest {w.min():.2f}  mean {w.mean():.2f}  largest {w.max():.2f}"
        )

# %% [md zh] batch-why
# ## BatchNorm：对一批里所有词元的同一个特征
#
# 把一批文本的词元一行一行摞成一张大表。LayerNorm 沿着**行**求均值，BatchNorm 沿着**列**求：
# 每个特征有一个均值，由这一批里所有的词元共同决定。

# %% [md en] batch-why
# ## BatchNorm: of one feature, over all tokens of the batch
#
# Pile the tokens of a batch up, row by row, to one large table. LayerNorm takes means along **rows**,
# BatchNorm along **columns**: each feature has one mean, made by all tokens of the batch together.


# %% [code] batch
def layer_norm(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(
        x.var(axis=-1, keepdims=True) + 1e-5
    )


def batch_norm(x):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)


table = rng.normal(size=(12, d))  # 3 texts of 4 tokens
for name, norm in (("LayerNorm", layer_norm), ("BatchNorm", batch_norm)):
    whole, fewer = norm(table)[0], norm(table[:8])[0]
    later = table.copy()
    later[3] += 5.0  # token 3 of the same text: the future of token 0
    print(f"{name}: token 0 moves by")
    print(f"    {np.abs(whole - fewer).max():.2f} when a text leaves the batch,")
    print(
        f"    {np.abs(norm(later)[0] - whole).max():.2f} when a later token changes"
    )

# %% [widget] norms
# name = "Norms"
# label.zh = "一张表，三种归一化：换批大小、换长度，看谁的输出跟着动"
# label.en = "One table, three norms: change batch and length, and see whose output moves"

# %% [md zh] batch-read
# 在语言模型里，BatchNorm 有三处难办。
#
# - 一个词元的输出取决于同批里别的文本。采样时只有一段文本，批里没有别人。
# - 它取决于**后面**的词元，因果掩码白装了：训练时会泄露未来。
# - 所以它得一边训练一边记下平均的均值和方差（running statistics），推理时改用记下的那些。
#   训练和推理于是成了两个函数。
#
# LayerNorm 一样也没有：没有记录，训练和推理是同一个函数，一个词元、一段文本、任意长度都照算。

# %% [md en] batch-read
# In a language model BatchNorm brings three troubles.
#
# - A token's output depends on the other texts of the batch. In sampling there is but one text.
# - It depends on **later** tokens, which undoes the causal mask: in training the future leaks.
# - So it must keep running statistics while it trains, and use those in inference. Training and
#   inference become two different functions.
#
# LayerNorm has none of this: nothing is remembered, training and inference are one function, and one
# token, one text or any length will do.

# %% [md zh] turn-why
# ## 练习：把 BatchNorm 改成 LayerNorm
#
# 下面是一个完整的 BatchNorm。改成 LayerNorm 只要两步：
# 换掉**一个维度**（出现两处），删掉所有为“记录”而存在的东西。
# 检查会拿它和 `torch.nn.LayerNorm` 逐个数比较。

# %% [md en] turn-why
# ## Exercise: turn BatchNorm into LayerNorm
#
# Here is a whole BatchNorm. Two things make it a LayerNorm: change **one dimension** (it stands in two
# places), and delete all that is there for the running statistics. The check compares it with
# `torch.nn.LayerNorm`, number by number.


# %% [code] turn
class Norm:
    def __init__(self, d, eps=1e-5, momentum=0.1):
        self.eps, self.momentum, self.training = eps, momentum, True
        self.gamma, self.beta = np.ones(d), np.zeros(d)
        self.running_mean, self.running_var = np.zeros(d), np.ones(d)

    def __call__(self, x):  # (L, d)
        if self.training:
            mean, var = x.mean(axis=0, keepdims=True), x.var(axis=0, keepdims=True)
            self.running_mean += self.momentum * (mean[0] - self.running_mean)
            self.running_var += self.momentum * (var[0] - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        return self.gamma * (x - mean) / np.sqrt(var + self.eps) + self.beta


# %% [solution] turn
class Norm:
    def __init__(self, d, eps=1e-5):
        self.eps = eps
        self.gamma, self.beta = np.ones(d), np.zeros(d)

    def __call__(self, x):  # (L, d)
        mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        return self.gamma * (x - mean) / np.sqrt(var + self.eps) + self.beta


# %% [check] turn
import torch

_norm, _x = Norm(6), np.random.default_rng(8).normal(2.0, 3.0, size=(5, 6))
_want = torch.nn.LayerNorm(6)(torch.from_numpy(_x).float()).detach().numpy()
_found = np.asarray(_norm(_x))
if np.allclose(_found, batch_norm(_x), atol=1e-4):
    expect(
        False,
        zh="每一列的均值是 0，这还是 BatchNorm。均值和方差都要沿特征求：axis=0 改成 axis=-1，两处都要改。",
        en="Each column has mean 0: this is still BatchNorm. Mean and variance go along the features: "
        "axis=-1 in place of axis=0, in both places.",
    )
else:
    expect(
        _found.shape == _want.shape and np.allclose(_found, _want, atol=1e-4),
        zh="和 torch.nn.LayerNorm 对不上。均值和方差都要用 axis=-1，并且 keepdims=True，好按行相减。",
        en="It differs from torch.nn.LayerNorm. Mean and variance both take axis=-1 with keepdims=True, so "
        "that they are taken off row by row.",
    )
_left = [
    name
    for name in vars(_norm)
    if "running" in name or name in ("momentum", "training")
]
expect(
    not _left,
    zh=f"还留着 {'、'.join(_left)}。LayerNorm 什么也不用记，训练和推理是同一个函数：连同 if 一起删掉。",
    en=f"There is still {', '.join(_left)}. LayerNorm remembers nothing, and training and inference are one "
    "function: delete them, and the if.",
)

# %% [md zh] rms-why
# ## RMSNorm：连均值也不减
#
# LLaMA 更进一步：不减均值，也没有 $\beta$，只除以均方根。

# %% [md en] rms-why
# ## RMSNorm: not even the mean
#
# LLaMA goes a step further: no mean is taken away, there is no $\beta$; only divide by the root of the
# mean square.

# %% [formula] rms
# latex = 'r = \gamma \odot \frac{x}{\sqrt{\frac{1}{d} \sum_{j=1}^{d} x_j^2 + \epsilon}}'
# code = "rms"
# names = {r = "r", "\\gamma" = "gamma", x = "x", x_j = "x[:, j - 1 : j]", d = "d", "\\epsilon" = "eps"}
# caption.zh = "RMSNorm"
# caption.en = "RMSNorm"

# %% [code] rms
r = gamma * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)  # (L, d)
print("RMSNorm:  ", r[1].round(2))
print("LayerNorm:", y[1].round(2))

seen = observe(model, val_ids[: min(40, config.context_length)])
for i in range(config.n_layers):
    stream = seen[f"block.{i}.output"]
    part = (stream.mean(-1) ** 2 / (stream**2).mean(-1)).mean()
    print(f"after block {i}: the mean is {part:.1e} of a token's mean square")

# %% [md zh] rms-read
# 第 1 个词元的均值是 5，两种归一化的结果差很远。可是在真实的残差流里，均值只占很小一点：
# 减不减它，几乎没有差别。于是省掉这一步，少读一遍数据，少存一个向量。
#
# 这里要说一句公道话：如果你的模型是用 LayerNorm 训练的，那么归一化从来读不到均值，也就没有梯度去推动它，它小并不奇怪。
# 换成 RMSNorm，均值就和别的方向一样，模型想用就能用。

# %% [md en] rms-read
# Token 1 has a mean of 5, and the two norms disagree about it. But in a real residual stream the mean is
# a tiny part: whether it is taken away hardly matters. So the step is left out: one pass over the data
# and one vector fewer.
#
# To be fair: a model trained with LayerNorm never reads the mean, so no gradient ever pushed it, and
# that it is small is no wonder. Under RMSNorm the mean is a direction like any other, for the model to
# use.

# %% [code] who
from partwise.model.presets import preset

for name in ("gpt2", "gpt3-175b", "palm-540b", "llama-7b", "llama2-70b"):
    c = preset(name)
    print(f"{name:10} {c.norm:10} beta: {c.norm_bias}")

# %% [md zh] claims
# ## 两个常见的说法
#
# **PaLM 用 RMSNorm** 吗？它的论文写的是没有偏置的 LayerNorm，放在并联的块里；用 RMSNorm 的是 LLaMA。
#
# **归一化有效，是因为它消除了内部协变量偏移**吗？BatchNorm 的论文这样解释；
# 后来有人故意在 BatchNorm 之后加上会漂移的噪声，训练照样快（Santurkar 等，2018）。这个理由至今有争议。
# 稳妥的说法只有我们量到的这些：尺度被固定，子层的输入不再随深度变大，梯度也跟着平稳。

# %% [md en] claims
# ## Two common tellings
#
# **Does PaLM have RMSNorm?** Its paper has LayerNorm without biases, in a parallel block. The one with
# RMSNorm is LLaMA.
#
# **Do norms work because they remove internal covariate shift?** That is how the BatchNorm paper explains
# it. Later, drifting noise was added on purpose after BatchNorm, and training was as fast (Santurkar et
# al., 2018). The reason is disputed. Safe to say is what we measured: the scale is fixed, what sublayers
# read no longer grows with depth, and gradients are steady with it.

# %% [quiz] rows
# kind = "choice"
# question.zh = "输入的形状是 $(B, L, d)$。LayerNorm 一共算出多少个均值？"
# question.en = "The input has the shape $(B, L, d)$. How many means does LayerNorm compute?"
# [[options]]
# zh = "$d$ 个"
# en = "$d$"
# right = false
# feedback.zh = "那是 BatchNorm：每个特征一个。"
# feedback.en = "That is BatchNorm: one a feature."
# [[options]]
# zh = "$B \\cdot L$ 个"
# en = "$B \\cdot L$"
# right = true
# feedback.zh = "对，每个词元一个，互不相干。"
# feedback.en = "Yes: one a token, and none knows of the others."
# [[options]]
# zh = "$B$ 个"
# en = "$B$"
# right = false
# feedback.zh = "每段文本一个均值，就会把后面的词元混进前面的词元，因果性就没了。"
# feedback.en = "One mean a text would mix later tokens into earlier ones, and causality would be gone."

# %% [quiz] scale
# kind = "number"
# question.zh = "把某个词元的特征全部乘以 1000，再过 LayerNorm（忽略 $\\epsilon$）。输出变成原来的几倍？"
# question.en = "All features of a token are multiplied by 1,000, and then LayerNorm is applied (ignore $\\epsilon$). How many times its former size is the output?"
# answer = 1
# tolerance = 0.001
# expression = "np.abs(layer_norm(1000 * table)).max() / np.abs(layer_norm(table)).max()"
# feedback.right.zh = "对，一点不变：尺度被除掉了。"
# feedback.right.en = "Yes: unchanged. The scale is divided out."
# feedback.wrong.zh = "均值和标准差也都乘了 1000，一除就抵消了。"
# feedback.wrong.en = "Mean and deviation are multiplied by 1,000 as well, and it cancels."

# %% [quiz] running
# kind = "many"
# question.zh = "哪些东西是 BatchNorm 需要、LayerNorm 不需要的？"
# question.en = "Which of these does BatchNorm need and LayerNorm not?"
# [[options]]
# zh = "训练时记下的均值和方差"
# en = "A mean and a variance remembered from training"
# right = true
# feedback.zh = "对，推理时要用。"
# feedback.en = "Yes, for inference."
# [[options]]
# zh = "区分训练模式和推理模式"
# en = "Telling training mode from inference mode"
# right = true
# feedback.zh = "对，两种模式算的不是同一个函数。"
# feedback.en = "Yes: in the two modes it is not the same function."
# [[options]]
# zh = "学来的 $\\gamma$ 和 $\\beta$"
# en = "A learned $\\gamma$ and $\\beta$"
# right = false
# feedback.zh = "两者都有，形状也一样：每个特征一个。"
# feedback.en = "Both have them, of the same shape: one a feature."
# [[options]]
# zh = "一批里有足够多的词元"
# en = "Enough tokens in a batch"
# right = true
# feedback.zh = "对。只有一个词元时，方差是 0，BatchNorm 就没有意义了。"
# feedback.en = "Yes. With a single token the variance is 0, and BatchNorm means nothing."

# %% [quiz] leak
# kind = "choice"
# question.zh = "在 GPT 里把 LayerNorm 换成 BatchNorm，训练损失下降很快，采样却是乱码。最可能的原因？"
# question.en = "LayerNorm in a GPT is replaced by BatchNorm. Training loss falls fast, but samples are gibberish. The likeliest cause?"
# [[options]]
# zh = "学习率太大"
# en = "The learning rate is too high"
# right = false
# feedback.zh = "那样训练损失也不会好看。"
# feedback.en = "Then the training loss would not look good either."
# [[options]]
# zh = "训练时统计量带进了后面词元的信息，采样时却没有后面"
# en = "In training the statistics carried information of later tokens; in sampling there are none"
# right = true
# feedback.zh = "对：训练和采样成了两个函数，而训练的那个偷看了未来。"
# feedback.en = "Yes: training and sampling became two functions, and the one in training peeked."
# [[options]]
# zh = "BatchNorm 的参数太少"
# en = "BatchNorm has too few parameters"
# right = false
# feedback.zh = "参数一样多。"
# feedback.en = "It has just as many."

# %% [reading]
# [[items]]
# title = "Ba, Kiros, Hinton 2016, Layer Normalization"
# where = "3; 5.1, table 1"
# look.zh = "表 1 列出三种归一化各对什么变化不敏感：重新缩放权重、缩放数据、平移……对照你的实验。"
# look.en = "Table 1 says what each norm is blind to: weights rescaled, data rescaled, data moved. Compare with your experiments."
# [[items]]
# title = "Zhang, Sennrich 2019, Root Mean Square Layer Normalization"
# where = "3, 4"
# look.zh = "作者的论点：起作用的是缩放不变，不是平移不变。"
# look.en = "Their claim: what matters is being blind to scale, and not to shifts."
# [[items]]
# title = "Santurkar et al. 2018, How Does Batch Normalization Help Optimization?"
# where = "2.1; figure 2"
# look.zh = "加了会漂移的噪声，训练照样快：对“内部协变量偏移”最直接的反例。"
# look.en = "With drifting noise added, training is as fast: the most direct case against internal covariate shift."
# [[items]]
# title = "nanoGPT"
# where = "model.py, class LayerNorm"
# look.zh = "为什么要自己写一个只有几行的类？看注释：当时 torch 的 LayerNorm 不能不要偏置。"
# look.en = "Why a class of its own, of a few lines? See the comment: torch's LayerNorm had no way to leave out the bias."
