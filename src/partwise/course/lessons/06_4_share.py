# %% [lesson]
# number = "06.4"
# minutes = 25
# title.zh = "注意力与前馈层的分工"
# title.en = "Attention and feed-forward share the work"

# %% [md zh] why
# 一个块里有两个子层。为什么要两个，不是一个？
#
# 常听到的回答是：注意力负责**交流**，前馈层负责**计算**。
# 这句话好记，但一句好记的话未必全对。这一课先用实验看它对在哪里，再看它漏了什么，
# 最后算一笔账：参数花在了谁身上。

# %% [md en] why
# A block has two sublayers. Why two, and not one?
#
# The usual answer: attention is for **communication**, the feed-forward layer for **computation**. That
# is easy to remember, which does not make it all true. This lesson first tests where it holds, then
# sees what it leaves out, and at last does the accounts: who gets the parameters.

# %% [md zh] perturb-why
# ## 谁让词元互相看见
#
# 办法很简单：只改动一个词元的特征，看输出里哪些行跟着动。把块里的每样零件都这样试一遍。

# %% [md en] perturb-why
# ## Who lets tokens see each other
#
# The method is simple: move the features of one token, and see which rows of the output move. Do that
# to every part of a block.

# %% [code] perturb
from partwise import reference

w = reference.part(weights, "blocks.0")
ids = val_ids[: min(10, config.context_length)]
x = observe(model, ids)["embedding"]  # (10, d)
L, d = x.shape


def norm(x):
    return reference.norm(config, reference.part(w, "norm1"), x)


def attention(x):
    own = reference.part(w, "attention")
    return reference.attention(config, own, norm(x)[None])[0]


def feedforward(x):
    if config.feedforward == "none":  # rungs 1 and 2 of the ladder have none
        return np.maximum(norm(x), 0)
    return reference.feedforward(config, reference.part(w, "feedforward"), norm(x))


def doubled(x):
    return x + x


touched = x.copy()
touched[4] += np.random.default_rng(0).normal(size=d)
for name, part in [
    ("norm", norm),
    ("attention", attention),
    ("feed-forward", feedforward),
    ("x + …", doubled),
]:
    moved = np.abs(part(touched) - part(x)).max(axis=-1) > 1e-6
    print(f"{name:13}", "".join("█" if m else "·" for m in moved))

# %% [widget] perturb-it
# name = "Perturb"
# label.zh = "改动一个词元，看整个模型里哪些位置跟着动"
# label.en = "Move one token, and see which places of the whole model move with it"

# %% [md zh] perturb-read
# 第 4 个词元（从 0 数）动了，只有注意力那一行传到了后面的词元，而且只往后传，前面的一动不动。
# 归一化、前馈层、加号都是**逐个词元**的：一行进，一行出。
#
# 所以，前馈层会不会混合词元？不会。把词元的顺序打乱，它的输出只是跟着打乱：

# %% [md en] perturb-read
# Token 4 (counting from 0) moved, and only attention passed it on to other tokens, and only to later
# ones. Norm, feed-forward layer and plus sign work **token by token**: a row in, a row out.
#
# So does the feed-forward layer mix tokens? No. Shuffle the tokens, and its output is shuffled alike:

# %% [formula] shuffle
# latex = '\operatorname{FFN}(P x) = P \operatorname{FFN}(x)'
# code = "shuffle"
# names = {FFN = "feedforward", P = "P", x = "x"}
# caption.zh = "P 打乱行的顺序：先打乱再算，与先算再打乱，结果一样"
# caption.en = "P shuffles rows: shuffling before or after makes no difference"

# %% [code] shuffle
P = np.eye(L)[np.random.default_rng(1).permutation(L)]  # (L, L)
print(np.allclose(feedforward(P @ x), P @ feedforward(x), atol=1e-5))

# %% [md zh] mean-why
# ## 谁在计算
#
# 反过来，份额一旦定下来，注意力做的只是**加权平均**：输出的每个特征都夹在可见词元的值的最小与最大之间，
# 平均不出新东西来。弯在前馈层里：展开、过非线性、收回。

# %% [md en] mean-why
# ## Who computes
#
# Conversely, once the shares are settled, attention only takes **weighted means**: each feature of its
# result lies between the smallest and the largest of the values it sees, and no mean makes anything
# new. The bend is in the feed-forward layer: out, through something nonlinear, and back.

# %% [code] mean
rng = np.random.default_rng(2)
V = rng.normal(size=(L, 8))
A = reference.softmax(
    np.where(np.tril(np.ones((L, L))) == 1, rng.normal(size=(L, L)), -np.inf)
)
Y = A @ V
inside = [
    (V[: t + 1].min(0) - 1e-9 <= Y[t]) & (Y[t] <= V[: t + 1].max(0) + 1e-9)
    for t in range(L)
]
print("every feature between the smallest and the largest seen:", np.all(inside))

# %% [md zh] fair
# 现在说这句话漏了什么。份额本身是算出来的：查询乘键，再 softmax，这一步并不线性。
# “找到上次出现同样开头的地方，抄它后面的字符”这样的事，靠的就是两层注意力的份额（所谓归纳头）。
# 所以更准确的说法是：**注意力决定信息从哪里来，前馈层决定拿到之后变成什么。**
#
# 两样缺一不可。在你的模型上验证：

# %% [md en] fair
# Now for what the saying leaves out. The shares themselves are computed: queries times keys, then
# softmax, and that is not linear. "Find where the same thing began before, and copy what came next" is
# done by the shares of two layers of attention (induction heads). So, more precisely: **attention
# decides where information comes from, the feed-forward layer what becomes of it.**
#
# Neither can be spared. On your model:

# %% [code] remove
from partwise.ladder.knockout import parts, silenced

whole = val_loss()
print(f"whole model            {whole:.2f}")
for part in (
    "block.0.attention",
    "attention",
    "block.0.feedforward",
    "feedforward",
    "positions",
):
    if part in parts(model):
        with silenced(model, part):
            print(f"without {part:20} {val_loss():.2f}")

# %% [md zh] remove-read
# 小模型里，拿掉一层前馈和拿掉全部前馈，代价差不多：后面各层都站在第 0 块写下的东西上，根基一去，全都读不懂了。
# 所以这样的测量说的是“别的零件有多依赖它”，不只是“它自己做了多少”。

# %% [md en] remove-read
# In the tiny model, removing one feed-forward layer costs about as much as removing all: the later
# blocks stand on what block 0 wrote, and without that ground they understand nothing. So such a
# measurement says how much other parts rely on one, and not only how much it does itself.

# %% [md zh] count-why
# ## 参数花在谁身上
#
# 注意力有四个 $d \times d$ 的矩阵：$W_Q, W_K, W_V, W_O$。前馈层有两个：$d \times 4d$ 和 $4d \times d$。

# %% [md en] count-why
# ## Who gets the parameters
#
# Attention has four matrices of $d \times d$: $W_Q, W_K, W_V, W_O$. The feed-forward layer has two,
# $d \times 4d$ and $4d \times d$.

# %% [formula] count
# latex = 's = \frac{8 d^2}{4 d^2 + 8 d^2}'
# code = "count"
# names = {s = "s", d = "width"}
# caption.zh = "经典的块里，前馈层占的份额（只数矩阵）"
# caption.en = "The feed-forward layer's share of a classic block, matrices only"

# %% [code] count
width = 768
attention_matrices = 4 * width * width
feedforward_matrices = width * 4 * width + 4 * width * width
s = feedforward_matrices / (attention_matrices + feedforward_matrices)
print(f"{s:.1%} of a block, whatever the width")

# %% [md zh] shares-why
# 三分之二，与 $d$ 无关。这个数到处都能看到，但它有两个前提，常常没人说：
#
# 1. 它说的是**一个块**，不是整个模型。小模型里，词表那张 $V \times d$ 的表占了很大一部分。
# 2. 它说的是**经典的块**。LLaMA 的前馈层有三个矩阵（SwiGLU），Llama-2-70B 还让 8 个查询头共用一组键和值，
#    注意力就小了。
#
# ## 练习：算准它
#
# 补全 `block_share`：一个块的矩阵里，前馈层占多少。
# 查询和输出投影各有 $d \cdot h d_k$ 个数；键和值各有 $d \cdot g d_k$ 个，$g$ 是键值头的个数；
# 前馈层有 2 个矩阵（SwiGLU 是 3 个），每个 $d \cdot d_{ff}$。

# %% [md en] shares-why
# Two thirds, whatever $d$ is. The figure is everywhere, but it takes two things for granted that are
# seldom said:
#
# 1. It speaks of **one block** and not of the whole model. In a small one the table of $V \times d$ for
#    the vocabulary is a large part.
# 2. It speaks of a **classic block**. LLaMA's feed-forward layer has three matrices (SwiGLU), and in
#    Llama-2-70B 8 query heads share one head of keys and values, so its attention is smaller.
#
# ## Exercise: get it right
#
# Complete `block_share`: the feed-forward layer's share of a block's matrices. Queries and projection
# hold $d \cdot h d_k$ numbers each; keys and values $d \cdot g d_k$ each, with $g$ heads of keys and
# values; the feed-forward layer has 2 matrices (3 with SwiGLU) of $d \cdot d_{ff}$.

# %% [code] shares
from partwise.model.parameters import parameters_by_part
from partwise.model.presets import preset


def block_share(c):
    d, h, g, d_k, d_ff = (
        c.d_model,
        c.n_heads,
        c.key_value_heads,
        c.head_size,
        c.inner_width,
    )
    attention = 4 * d * d
    feedforward = 2 * d * d_ff
    return feedforward / (attention + feedforward)


for name in ("gpt2", "gpt3-175b", "llama-65b", "llama2-70b"):
    by_part = parameters_by_part(preset(name))
    print(
        f"{name:11} of a block {block_share(preset(name)):.1%}, "
        f"of the whole model {by_part['feedforward'] / sum(by_part.values()):.1%}"
    )

# %% [solution] shares
from partwise.model.parameters import parameters_by_part
from partwise.model.presets import preset


def block_share(c):
    d, h, g, d_k, d_ff = (
        c.d_model,
        c.n_heads,
        c.key_value_heads,
        c.head_size,
        c.inner_width,
    )
    attention = 2 * d * h * d_k + 2 * d * g * d_k
    feedforward = (3 if c.feedforward == "swiglu" else 2) * d * d_ff
    return feedforward / (attention + feedforward)


for name in ("gpt2", "gpt3-175b", "llama-65b", "llama2-70b"):
    by_part = parameters_by_part(preset(name))
    print(
        f"{name:11} of a block {block_share(preset(name)):.1%}, "
        f"of the whole model {by_part['feedforward'] / sum(by_part.values()):.1%}"
    )

# %% [check] shares
expect(
    abs(block_share(preset("gpt2")) - 2 / 3) < 1e-6,
    zh=f"GPT-2 是经典的块，应当正好是 2/3，现在是 {block_share(preset('gpt2')):.3f}。",
    en=f"GPT-2 has classic blocks: exactly 2/3, not {block_share(preset('gpt2')):.3f}.",
)
_llama = block_share(preset("llama-65b"))
expect(
    abs(_llama - 0.6684) < 5e-4,
    zh=f"LLaMA-65B 应当约为 66.8%，现在是 {_llama:.1%}。它的前馈层是 SwiGLU，有三个矩阵：升维、门、降维。",
    en=f"LLaMA-65B should be about 66.8 %, not {_llama:.1%}. Its feed-forward layer is SwiGLU, with three "
    "matrices: up, gate, down.",
)
_llama2 = block_share(preset("llama2-70b"))
expect(
    abs(_llama2 - 0.8235) < 5e-4,
    zh=f"Llama-2-70B 应当约为 82.4%，现在是 {_llama2:.1%}。它的 64 个查询头共用 8 组键和值：用 g，不用 h。",
    en=f"Llama-2-70B should be about 82.4 %, not {_llama2:.1%}. Its 64 query heads share 8 heads of keys "
    "and values: those take g, not h.",
)

# %% [widget] bars
# name = "Share"
# label.zh = "GPT-2、GPT-3、Llama 和你的模型：参数各在哪里"
# label.en = "GPT-2, GPT-3, Llama and your model: where the parameters are"

# %% [md zh] shares-read
# 看“整个模型”那一列：GPT-2 small 的前馈层只占 45.5%，因为 50,257 个词元的表占了近三分之一。
# 模型一大，词表就不算什么了，GPT-3 里前馈层占 66.4%。
#
# 为什么给前馈层这么多？因为计算要靠参数：每个隐藏特征是一个探测器加一段要写进残差流的内容，
# 记住的东西越多，需要的探测器越多。注意力搬运信息，搬运工不必随货物的种类一起增加。

# %% [md en] shares-read
# See the column for the whole model: in GPT-2 small the feed-forward layers are only 45.5 %, because
# the table of 50,257 tokens takes nearly a third. In a large model the vocabulary counts for little;
# in GPT-3 it is 66.4 %.
#
# Why so much for the feed-forward layer? Because computing takes parameters: each hidden feature is a
# detector and something to write into the stream, and more to be remembered takes more detectors.
# Attention carries information about, and carriers need not grow with the kinds of goods.

# %% [quiz] mixing
# kind = "choice"
# question.zh = "前馈层会混合不同的词元吗？"
# question.en = "Does the feed-forward layer mix tokens?"
# [[options]]
# zh = "会，它有 $4d$ 个隐藏特征，连着所有词元"
# en = "Yes: its $4d$ hidden features are joined to all tokens"
# right = false
# feedback.zh = "$4d$ 是特征的个数，不是词元的个数。每个词元各有自己的 $4d$ 个隐藏特征。"
# feedback.en = "$4d$ counts features and not tokens. Every token has $4d$ hidden features of its own."
# [[options]]
# zh = "不会，同一套权重分别用在每个词元上"
# en = "No: the same weights are applied to each token apart"
# right = true
# feedback.zh = "对，所以打乱词元，输出只是跟着打乱。"
# feedback.en = "Yes; so shuffled tokens give shuffled outputs, and nothing else."
# [[options]]
# zh = "训练时会，采样时不会"
# en = "In training yes, in sampling no"
# right = false
# feedback.zh = "两种时候都不会。训练时会混合一批里词元的是 BatchNorm，见 [06.6](/lesson/06.6)。"
# feedback.en = "In neither. What mixes tokens in training is BatchNorm; see [06.6](/lesson/06.6)."

# %% [quiz] sharesquiz
# kind = "many"
# question.zh = "“前馈层占三分之二”在什么情况下成立？"
# question.en = "When does \"the feed-forward layer has two thirds\" hold?"
# [[options]]
# zh = "数一个经典块的矩阵：$4d^2$ 和 $8d^2$"
# en = "Counting the matrices of a classic block: $4d^2$ and $8d^2$"
# right = true
# feedback.zh = "对，这正是它的来历。"
# feedback.en = "Yes: that is where it comes from."
# [[options]]
# zh = "数整个 GPT-2 small"
# en = "Counting all of GPT-2 small"
# right = false
# feedback.zh = "那里是 45.5%，词表占了近三分之一。"
# feedback.en = "There it is 45.5 %; the vocabulary takes nearly a third."
# [[options]]
# zh = "数 LLaMA-65B 的一个块，大致成立"
# en = "Counting a block of LLaMA-65B, roughly"
# right = true
# feedback.zh = "对：三个矩阵，每个宽 $\\frac{8}{3}d$ 左右，合起来还是约 $8d^2$，正是为此才这样选的。"
# feedback.en = "Yes: three matrices, each about $\\frac{8}{3}d$ wide, again make about $8d^2$; the width was chosen for that."
# [[options]]
# zh = "数 Llama-2-70B 的一个块"
# en = "Counting a block of Llama-2-70B"
# right = false
# feedback.zh = "那里是 82.4%：键和值共用，注意力缩小了。"
# feedback.en = "There it is 82.4 %: keys and values are shared, so attention is smaller."

# %% [quiz] numbers
# kind = "number"
# question.zh = "一个经典的块，$d = 1024$。只数矩阵，一共多少个参数？"
# question.en = "A classic block with $d = 1024$. How many parameters has it, matrices only?"
# answer = 12582912
# expression = "12 * 1024**2"
# feedback.right.zh = "对：$12d^2$。$N$ 个块就是 $12Nd^2$，[06.9](/lesson/06.9) 会看它准不准。"
# feedback.right.en = "Yes: $12d^2$, and $12Nd^2$ for $N$ blocks; [06.9](/lesson/06.9) sees how good that is."
# feedback.wrong.zh = "注意力 $4d^2$，前馈层 $8d^2$，加起来。"
# feedback.wrong.en = "$4d^2$ for attention and $8d^2$ for the feed-forward layer."

# %% [quiz] only
# kind = "choice"
# question.zh = "一个模型只有注意力和残差，没有前馈层。它首先做不好什么？"
# question.en = "A model has attention and residuals but no feed-forward layers. What suffers first?"
# [[options]]
# zh = "把远处的词元拿过来"
# en = "Fetching something from a distant token"
# right = false
# feedback.zh = "这正是注意力的长处。"
# feedback.en = "That is just what attention is good at."
# [[options]]
# zh = "把拿来的特征组合成新的特征，例如“前一个是 q，并且在词中间”"
# en = "Combining what was fetched into something new, such as \"the last was q, and we are inside a word\""
# right = true
# feedback.zh = "对。份额定了之后只是平均，“并且”这样的组合需要弯。"
# feedback.en = "Yes. With its shares settled attention only averages; an \"and\" needs a bend."
# [[options]]
# zh = "区分词元的位置"
# en = "Telling places apart"
# right = false
# feedback.zh = "位置来自位置嵌入（或旋转），与前馈层无关。"
# feedback.en = "Places come from position embeddings (or rotation), and not from the feed-forward layer."

# %% [reading]
# [[items]]
# title = "Geva et al. 2021, Transformer Feed-Forward Layers Are Key-Value Memories"
# where = "2, 3"
# look.zh = "把 $W_1$ 的每一列看作探测器、$W_2$ 的每一行看作写下的内容；他们请人看每个探测器对什么亮。"
# look.en = "Columns of $W_1$ as detectors and rows of $W_2$ as what they write; people were asked what each detector lights up for."
# [[items]]
# title = "Dong et al. 2021, Attention Is Not All You Need"
# where = "abstract; figure 1"
# look.zh = "没有残差和前馈层时，纯注意力把所有词元越混越像。[下一课](/lesson/06.5)你会亲眼看到。"
# look.en = "Without residuals and feed-forward layers, pure attention makes all tokens alike. In [the next lesson](/lesson/06.5) you will see it happen."
# [[items]]
# title = "partwise, model/parameters.py"
# where = "attention_matrices(), feedforward_matrices()"
# look.zh = "你的练习的完整版，还数了偏置、归一化和词表。"
# look.en = "Your exercise in full, with biases, norms and vocabulary counted as well."
