# %% [lesson]
# number = "06.13"
# minutes = 30
# title.zh = "复习"
# title.en = "Review"

# %% [md zh] why
# 学过的东西，过几天自己答一遍，比重读一遍记得牢得多（Roediger 和 Karpicke，2006）。
#
# 这里的题目覆盖 [05](/lesson/05) 到 [06.12](/lesson/06.12)。做法：先不看选项，在心里说出答案，再选；答错的会在[复习页](/review)隔几天再来。
# 每组题前有一个能跑的格子：拿不准时，去问你的模型，而不是去翻答案。

# %% [md en] why
# Answering from memory some days later makes things stay far better than reading them again
# (Roediger and Karpicke 2006).
#
# These questions cover [05](/lesson/05) to [06.12](/lesson/06.12). Say the answer to yourself before you look at the
# options; what you miss comes back in some days on the [review page](/review). Each group begins
# with a cell to run: when in doubt, ask your model and not the answer key.

# %% [md zh] group-ffn
# ## 一、谁在交流，谁在计算
#
# 把第 5 个词元的残差流推一下，看子层的哪些输出动了：

# %% [md en] group-ffn
# ## 1. Who communicates, who computes
#
# Push the stream of token 5 a little, and see which outputs of a sublayer move:

# %% [code] push
import torch

ids = val_ids[: min(12, config.context_length)]
stream = torch.tensor(observe(model, ids)["embedding"], dtype=torch.float32)[None]
pushed = stream.clone()
pushed[0, 5] += torch.randn(
    stream.shape[-1], generator=torch.Generator().manual_seed(1)
)
ffn = model.blocks[0].feedforward
if ffn is None:  # rungs 1 and 2 of the ladder have none
    print(lacking("feedforward"))
    spare = pw.ModelConfig(
        d_model=config.d_model, n_heads=config.n_heads, n_layers=1
    )
    ffn = pw.GPT(spare).blocks[0].feedforward
with torch.no_grad():
    by_ffn = (ffn(pushed) - ffn(stream))[0].abs().amax(-1)
print("feed-forward moves:", np.flatnonzero(by_ffn > 1e-6))

# %% [check] push
expect(
    np.flatnonzero(by_ffn > 1e-6).tolist() == [5],
    zh="前馈层只应改变被推的那一个词元。",
    en="The feed-forward layer should move the pushed token alone.",
)

# %% [quiz] ffn-mix
# kind = "choice"
# question.zh = "前馈层会混合不同的词元吗？"
# question.en = "Does the feed-forward layer mix tokens?"
# [[options]]
# zh = "会，它是全连接的"
# en = "Yes, it is fully connected"
# right = false
# feedback.zh = "全连接的是**特征**之间；每个词元各自过同一个网络。"
# feedback.en = "Its **features** are fully connected; each token goes through the same network alone."
# [[options]]
# zh = "不会，混合词元的只有注意力"
# en = "No, attention alone mixes tokens"
# right = true
# feedback.zh = "对，上面的格子里只有第 5 个动了。"
# feedback.en = "Right: in the cell above only token 5 moved."
# [[options]]
# zh = "只混合相邻的词元"
# en = "It mixes neighbours only"
# right = false
# feedback.zh = "那是卷积；前馈层的“核”宽度是 1。"
# feedback.en = "That would be a convolution; the feed-forward layer's kernel is one token wide."

# %% [quiz] ffn-for
# kind = "choice"
# question.zh = "前馈层是做什么用的？"
# question.en = "What is the feed-forward layer for?"
# [[options]]
# zh = "听完别的词元之后，各自做非线性的计算"
# en = "After listening to others, each token computes something nonlinear by itself"
# right = true
# feedback.zh = "对。注意力的输出对值是线性的（权重给定时），没有前馈层，模型的非线性就少得可怜。"
# feedback.en = "Yes. Given its weights, attention is linear in the values; without the feed-forward layer little nonlinearity is left."
# [[options]]
# zh = "把各个头的输出拼起来"
# en = "It joins the heads' outputs"
# right = false
# feedback.zh = "那是输出投影。"
# feedback.en = "The output projection does."
# [[options]]
# zh = "让梯度绕过注意力"
# en = "It lets the gradient pass attention by"
# right = false
# feedback.zh = "那是残差连接。"
# feedback.en = "The residual connection does."

# %% [quiz] ffn-share
# kind = "number"
# question.zh = "经典的块（前馈层宽 $4d$，只数矩阵）里，前馈层占百分之几？"
# question.en = "In a classic block (inner width $4d$, matrices only), what per cent is feed-forward?"
# answer = 66.7
# tolerance = 0.5
# expression = "100 * 8 / 12"
# feedback.right.zh = "对，$8d^2 / 12d^2$：两个 $d \\times 4d$ 的矩阵，对注意力的四个 $d \\times d$。"
# feedback.right.en = "Yes, $8d^2 / 12d^2$: two matrices of $d \\times 4d$ against attention's four of $d \\times d$."
# feedback.wrong.zh = "数一数：注意力 $4d^2$，前馈层 $2 \\cdot 4d^2$。"
# feedback.wrong.en = "Count: attention $4d^2$, feed-forward $2 \\cdot 4d^2$."

# %% [quiz] ffn-share-whole
# kind = "choice"
# question.zh = "GPT-2 small 里，前馈层占**整个模型**的参数约 45.5%，不到三分之二。为什么？"
# question.en = "In GPT-2 small the feed-forward layers hold 45.5 % of **the whole model**, less than two thirds. Why?"
# [[options]]
# zh = "它的前馈层窄一些"
# en = "Its feed-forward layers are narrower"
# right = false
# feedback.zh = "也是 $4d$。"
# feedback.en = "They are $4d$ wide too."
# [[options]]
# zh = "词元嵌入占了近三分之一"
# en = "Token embeddings hold almost a third"
# right = true
# feedback.zh = "对：三分之二说的是块，不是整个模型。模型越大，词表占得越少。"
# feedback.en = "Yes: two thirds is said of a block and not of the model. In larger models the vocabulary counts for less."
# [[options]]
# zh = "LayerNorm 占了很多"
# en = "LayerNorm holds a lot"
# right = false
# feedback.zh = "LayerNorm 的参数只有 $2d$ 个一份，可以忽略。"
# feedback.en = "A LayerNorm has $2d$ parameters; that is next to nothing."

# %% [md zh] group-heads
# ## 二、头与投影

# %% [md en] group-heads
# ## 2. Heads and the projection

# %% [quiz] head-size
# kind = "number"
# question.zh = "$d = 1600$，25 个头。每个头多宽？"
# question.en = "$d = 1600$ and 25 heads. How wide is a head?"
# answer = 64
# expression = "1600 / 25"
# feedback.right.zh = "对，这是 GPT-2 XL。"
# feedback.right.en = "Yes; this is GPT-2 XL."
# feedback.wrong.zh = "$d_k = d / h$。"
# feedback.wrong.en = "$d_k = d / h$."

# %% [quiz] projection
# kind = "many"
# question.zh = "头拼起来已经宽 $d$ 了，为什么还要输出投影？"
# question.en = "Joined, the heads are $d$ wide already. Why an output projection?"
# [[options]]
# zh = "让各个头的结果互相组合"
# en = "To combine what different heads found"
# right = true
# feedback.zh = "对：没有它，第 $i$ 个头只能写到残差流的第 $i$ 段。"
# feedback.en = "Yes: without it, head $i$ could write to the $i$th part of the stream only."
# [[options]]
# zh = "换回残差流的“坐标”再相加"
# en = "To come back into the stream's own space before adding"
# right = true
# feedback.zh = "对：头里的坐标是它自己的，残差流的坐标是所有块共用的。"
# feedback.en = "Yes: a head's coordinates are its own, those of the stream are shared by all blocks."
# [[options]]
# zh = "补上形状，否则加不起来"
# en = "To make the shapes fit"
# right = false
# feedback.zh = "$h \\cdot d_k = d$，形状本来就合。"
# feedback.en = "$h \\cdot d_k = d$: they fit already."
# [[options]]
# zh = "加入非线性"
# en = "To add nonlinearity"
# right = false
# feedback.zh = "它是线性的。"
# feedback.en = "It is linear."

# %% [quiz] attention-steps
# kind = "order"
# question.zh = "排好一个头的计算。"
# question.en = "Put one head's computation in order."
# [[items]]
# zh = "算出查询、键、值"
# en = "Make queries, keys and values"
# feedback.zh = "都来自同一条（归一化过的）残差流。"
# feedback.en = "All from the same (normalised) stream."
# [[items]]
# zh = "查询与键相乘，除以 $\\sqrt{d_k}$"
# en = "Multiply queries by keys, divide by $\\sqrt{d_k}$"
# feedback.zh = "除一下，分数的方差才不随 $d_k$ 变大。"
# feedback.en = "The division keeps the scores' variance from growing with $d_k$."
# [[items]]
# zh = "遮住未来"
# en = "Hide the future"
# feedback.zh = "必须在 softmax 之前，否则权重不会重新加成 1。"
# feedback.en = "Before softmax, or the weights would not sum to 1 again."
# [[items]]
# zh = "softmax"
# en = "Softmax"
# feedback.zh = "每一行成为一个分布。"
# feedback.en = "Each row becomes a distribution."
# [[items]]
# zh = "用权重混合值"
# en = "Mix the values by the weights"
# feedback.zh = "这就是这个头听到的。"
# feedback.en = "This is what the head heard."

# %% [quiz] mask-code
# kind = "code"
# question.zh = "补全 `masked`：把打分表里属于未来的格子变成 $-\\infty$。现在的写法遮错了边。"
# question.en = "Complete `masked`: put $-\\infty$ into the cells of the table that lie in the future. As it stands the wrong side is hidden."
# start = """
# import numpy as np
#
#
# def masked(scores):
#     T = len(scores)
#     past = np.tril(np.ones((T, T), bool), -1)
#     return np.where(past, -np.inf, scores)
# """
# solution = """
# import numpy as np
#
#
# def masked(scores):
#     T = len(scores)
#     future = np.triu(np.ones((T, T), bool), 1)
#     return np.where(future, -np.inf, scores)
# """
# check = """
# got = masked(np.ones((4, 4)))
# expect(
#     np.isinf(got[0, 1:]).all() and np.isinf(got[1, 2:]).all(),
#     zh="第 0 行只该看得见第 0 列：右上方是未来，要遮住。",
#     en="Row 0 should see column 0 only: the upper right is the future and must be hidden.",
# )
# expect(
#     np.isfinite(np.tril(got)[np.tril_indices(4)]).all(),
#     zh="对角线和左下方要留着：词元看得见自己和过去。",
#     en="The diagonal and below must stay: a token sees itself and the past.",
# )
# """
# feedback.right.zh = "对。行是提问的，列是回答的；列号大于行号就是未来。"
# feedback.right.en = "Right. Rows ask and columns answer; a column after the row is the future."
# feedback.wrong.zh = "想想第 0 个词元：它能看见谁？"
# feedback.wrong.en = "Think of token 0: whom can it see?"

# %% [md zh] group-depth
# ## 三、残差与归一化
#
# 残差让梯度走直路。用标量试一遍：96 个“子层”各把输入乘 0.1，有残差和没有残差，导数是多少？

# %% [md en] group-depth
# ## 3. Residuals and norms
#
# A residual gives the gradient a straight way. Try it with plain numbers: 96 "sublayers" multiply
# their input by 0.1; what is the derivative with a residual, and without?

# %% [formula] chain
# latex = 'g = \prod_{i=1}^{N} (1 + s)'
# code = "chain"
# names = {g = "g", N = "N", s = "s"}
# caption.zh = "有残差时，N 层的导数；去掉 1 就是没有残差"
# caption.en = "The derivative through N layers with residuals; take away the 1 for none"

# %% [code] chain
N, s = 96, 0.1
g = (1 + s) ** N
print(f"with residuals {g:.1f}, without {s**N:.0e}")

# %% [md zh] chain-read
# 两边都不是好事：没有残差，梯度消失；有残差而没有归一化，会膨胀。所以要两样一起用。
# （真实的 96 层是什么样，[06.5](/lesson/06.5) 量过，比这个标量的故事更曲折。）

# %% [md en] chain-read
# Neither is good: without residuals the gradient is gone, with them and no norm it swells. Hence both
# together. ([06.5](/lesson/06.5) measures real stacks of 96 layers, and theirs is a less simple
# story than these plain numbers tell.)

# %% [quiz] residual
# kind = "many"
# question.zh = "关于残差连接，哪些对？"
# question.en = "What is true of residual connections?"
# [[options]]
# zh = "加法把梯度原样交给两边"
# en = "An addition hands the gradient on to both branches"
# right = true
# feedback.zh = "对，所以总有一条不经过子层的路。"
# feedback.en = "Yes, so there is always a way past the sublayer."
# [[options]]
# zh = "没有残差，梯度就一定消失"
# en = "Without them the gradient always vanishes"
# right = false
# feedback.zh = "没有归一化时才如此。有 pre-norm 而无残差时，梯度还在，但所有词元变得一样（[06.5](/lesson/06.5)）。"
# feedback.en = "Only without norms. With pre-norm and no residual the gradient survives, but all tokens become alike ([06.5](/lesson/06.5))."
# [[options]]
# zh = "它增加了很多参数"
# en = "They add many parameters"
# right = false
# feedback.zh = "一个也没有。"
# feedback.en = "Not one."
# [[options]]
# zh = "要求子层的输入和输出同形"
# en = "They require a sublayer's input and output to have the same shape"
# right = true
# feedback.zh = "对，所以每一块都是 $(T, d) \\to (T, d)$。"
# feedback.en = "Yes, so every block is $(T, d) \\to (T, d)$."

# %% [quiz] norm-code
# kind = "code"
# question.zh = "下面的 `norm` 把 $(T, d)$ 的矩阵按**列**归一化，像 BatchNorm。改一处，让它成为 LayerNorm（不带 $\\gamma$、$\\beta$）。"
# question.en = "This `norm` normalises a matrix of $(T, d)$ by **columns**, as BatchNorm does. Change it into LayerNorm (without $\\gamma$ and $\\beta$)."
# start = """
# def norm(x, eps=1e-5):
#     mean = x.mean(0, keepdims=True)
#     variance = x.var(0, keepdims=True)
#     return (x - mean) / (variance + eps) ** 0.5
# """
# solution = """
# def norm(x, eps=1e-5):
#     mean = x.mean(-1, keepdims=True)
#     variance = x.var(-1, keepdims=True)
#     return (x - mean) / (variance + eps) ** 0.5
# """
# check = """
# import numpy as np
#
# x = np.random.default_rng(0).normal(3, 2, (6, 8))
# y = norm(x)
# expect(
#     np.allclose(y.mean(-1), 0, atol=1e-6),
#     zh="每一**行**（一个词元）的平均应为 0；现在是按列算的。",
#     en="Each **row** (one token) should have mean 0; it is taken over columns now.",
# )
# expect(
#     np.allclose(norm(x[:1]), y[:1]),
#     zh="只给一个词元，结果也应不变：LayerNorm 不看别的词元。",
#     en="One token alone should give the same result: LayerNorm does not look at others.",
# )
# """
# feedback.right.zh = "对，只差一个轴；LayerNorm 因此也不需要运行统计量。"
# feedback.right.en = "Right, it is one axis; and so LayerNorm needs no running statistics."
# feedback.wrong.zh = "行是词元，列是特征。LayerNorm 在一个词元的特征之间求平均。"
# feedback.wrong.en = "Rows are tokens, columns features. LayerNorm averages over the features of one token."

# %% [quiz] layer-batch
# kind = "many"
# question.zh = "LayerNorm 比 BatchNorm 更适合语言模型，因为……"
# question.en = "LayerNorm suits language models better than BatchNorm because …"
# [[options]]
# zh = "一个词元的结果不取决于同批的其他文字"
# en = "a token's result does not depend on the rest of the batch"
# right = true
# feedback.zh = "对：换批次、换长度，结果不变。"
# feedback.en = "Yes: with another batch or length, it is the same."
# [[options]]
# zh = "训练和生成时算法相同，不用运行统计量"
# en = "it computes the same in training and in use, with no running statistics"
# right = true
# feedback.zh = "对。"
# feedback.en = "Yes."
# [[options]]
# zh = "BatchNorm 在训练时会把未来的词元混进来"
# en = "in training, BatchNorm mixes in tokens from the future"
# right = true
# feedback.zh = "对，一列的平均包含后面的词元，因果性就破了。"
# feedback.en = "Yes: a column's mean has later tokens in it, and causality is broken."
# [[options]]
# zh = "已证明它消除了“内部协变量偏移”"
# en = "it is proven to remove internal covariate shift"
# right = false
# feedback.zh = "这个解释有争议（Santurkar 等，2018，针对 BatchNorm 做过反驳的实验）。"
# feedback.en = "That explanation is disputed (Santurkar et al. 2018 found evidence against it for BatchNorm)."

# %% [quiz] pre-post
# kind = "order"
# question.zh = "按 **pre-norm** 的次序排好一个子层。"
# question.en = "Put a **pre-norm** sublayer in order."
# [[items]]
# zh = "记住残差流 $x$"
# en = "Keep the stream $x$"
# feedback.zh = "它原样走直路。"
# feedback.en = "It goes straight on, unchanged."
# [[items]]
# zh = "归一化一份拷贝"
# en = "Normalise a copy"
# feedback.zh = "只归一化子层的输入。"
# feedback.en = "Only the sublayer's input is normalised."
# [[items]]
# zh = "过子层"
# en = "Through the sublayer"
# feedback.zh = "注意力或前馈层。"
# feedback.en = "Attention or feed-forward."
# [[items]]
# zh = "加回 $x$"
# en = "Add to $x$"
# feedback.zh = "若在这之后才归一化，就是 post-norm 了。"
# feedback.en = "A norm after this would make it post-norm."

# %% [quiz] why-pre
# kind = "choice"
# question.zh = "为什么 pre-norm 让很深的模型更容易训练？"
# question.en = "Why does pre-norm make very deep models easier to train?"
# [[options]]
# zh = "残差流上没有归一化挡路，梯度能直达第一层"
# en = "No norm stands in the stream's way, so the gradient reaches the first layer directly"
# right = true
# feedback.zh = "对。不过差别有多大还取决于初始化和学习率预热（[06.7](/lesson/06.7)）。"
# feedback.en = "Yes. How much it matters also depends on the initialisation and on warm-up ([06.7](/lesson/06.7))."
# [[options]]
# zh = "它的参数更少"
# en = "It has fewer parameters"
# right = false
# feedback.zh = "几乎一样多，还多出最后一个归一化。"
# feedback.en = "It has about as many, and one final norm more."
# [[options]]
# zh = "它的最终损失总是更低"
# en = "Its final loss is always lower"
# right = false
# feedback.zh = "不一定；训练得起来时，post-norm 也可以很好。"
# feedback.en = "Not necessarily; where post-norm trains at all, it can do well."

# %% [md zh] group-training
# ## 四、训练、放大、架构

# %% [md en] group-training
# ## 4. Training, scale, architecture

# %% [quiz] ahead
# kind = "many"
# question.zh = "训练损失远低于验证损失。可以拧什么？"
# question.en = "The training loss is far below the validation loss. What can be turned?"
# [[options]]
# zh = "加大 dropout 或权重衰减"
# en = "More dropout or weight decay"
# right = true
# feedback.zh = "对。"
# feedback.en = "Yes."
# [[options]]
# zh = "换更大的模型"
# en = "A larger model"
# right = false
# feedback.zh = "更大的模型背得更快。除非同时有更多文字。"
# feedback.en = "A larger one learns by heart even faster, unless there is more text as well."
# [[options]]
# zh = "更多文字，或更早停下"
# en = "More text, or an earlier stop"
# right = true
# feedback.zh = "对。"
# feedback.en = "Yes."
# [[options]]
# zh = "关掉评估模式"
# en = "Leave evaluation mode"
# right = false
# feedback.zh = "那只会让数字更糟、更抖，模型并没有变。"
# feedback.en = "That makes the figure worse and noisier; the model is the same."

# %% [quiz] attention-dropout
# kind = "choice"
# question.zh = "在注意力权重上用 dropout，断掉的是什么？"
# question.en = "What does dropout on attention weights cut?"
# [[options]]
# zh = "某个词元这一步听另一个词元的通路"
# en = "The way by which one token hears another, for this step"
# right = true
# feedback.zh = "对，所以不能总靠同一条线索。"
# feedback.en = "Yes, so nothing can rely on the same clue always."
# [[options]]
# zh = "整个头"
# en = "A whole head"
# right = false
# feedback.zh = "每条边单独掷硬币，头还在。"
# feedback.en = "Each edge has its own coin; the head stays."
# [[options]]
# zh = "残差流"
# en = "The residual stream"
# right = false
# feedback.zh = "残差流本身从不丢。"
# feedback.en = "The stream itself is never dropped."

# %% [quiz] twelve
# kind = "number"
# question.zh = "24 层，宽 1024。块里的矩阵约有多少**百万**个参数？"
# question.en = "24 layers, width 1024. About how many **million** parameters are in the blocks' matrices?"
# answer = 302
# tolerance = 3
# expression = "12 * 24 * 1024**2 / 1e6"
# feedback.right.zh = "对，$12Nd^2$。GPT-2 medium 一共 3.55 亿，其余主要是词元嵌入。"
# feedback.right.en = "Yes, $12Nd^2$. GPT-2 medium has 355 million in all; the rest is mainly embeddings."
# feedback.wrong.zh = "$12 \\cdot 24 \\cdot 1024^2$。"
# feedback.wrong.en = "$12 \\cdot 24 \\cdot 1024^2$."

# %% [quiz] decoder
# kind = "choice"
# question.zh = "编码器和解码器的块，根本区别是？"
# question.en = "What is the essential difference between an encoder's and a decoder's block?"
# [[options]]
# zh = "有没有三角形掩码"
# en = "The triangular mask"
# right = true
# feedback.zh = "对；翻译用的解码器另有交叉注意力。"
# feedback.en = "Yes; a translating decoder has cross-attention besides."
# [[options]]
# zh = "归一化的位置"
# en = "Where the norm stands"
# right = false
# feedback.zh = "两者都可以用 pre-norm 或 post-norm。"
# feedback.en = "Both can be pre- or post-norm."
# [[options]]
# zh = "解码器没有前馈层"
# en = "A decoder has no feed-forward layer"
# right = false
# feedback.zh = "都有。"
# feedback.en = "Both have one."

# %% [quiz] paired
# kind = "choice"
# question.zh = "比较两个模型时，为什么用**同样的**几个种子，再逐个相减？"
# question.en = "Why compare two models with the **same** seeds and subtract seed by seed?"
# [[options]]
# zh = "同一个种子读同样的批次，那部分运气就抵消了"
# en = "One seed reads the same batches, so that part of the luck cancels"
# right = true
# feedback.zh = "对；初始权重的运气抵消不掉。"
# feedback.en = "Yes; the luck of the first weights does not."
# [[options]]
# zh = "这样每个模型都得到更低的损失"
# en = "Both models then reach a lower loss"
# right = false
# feedback.zh = "损失不变，变的是差的误差。"
# feedback.en = "The losses stay; what changes is the error of the difference."
# [[options]]
# zh = "这样一个种子就够了"
# en = "Then one seed is enough"
# right = false
# feedback.zh = "一个差没有散布，无从判断。"
# feedback.en = "One difference has no spread to judge by."

# %% [md zh] own-words
# ## 五、用自己的话
#
# 合上书，各用一句话说给别人听；说不出的，回到那一课：
#
# 1. 没有位置嵌入，句子的次序对注意力有没有影响？（[05](/lesson/05)）
# 2. 为什么说残差流是“总线”，子层是“读写它的设备”？（[06.2](/lesson/06.2)）
# 3. 输出投影像分组卷积之后的什么？（[06.3](/lesson/06.3)）
# 4. 一个训练好的模型，跳过最后一块为什么还能用？（[06.8](/lesson/06.8)）
# 5. 你会怎样量“旋转位置值多少”，用几个种子？（[06.12](/lesson/06.12)）

# %% [md en] own-words
# ## 5. In your own words
#
# Close everything and explain each in one sentence to somebody; where you cannot, go back:
#
# 1. Without positions, does attention notice the order of a sentence? ([05](/lesson/05))
# 2. Why call the residual stream a bus, and the sublayers devices that read and write it?
#    ([06.2](/lesson/06.2))
# 3. What does the output projection resemble, after a grouped convolution? ([06.3](/lesson/06.3))
# 4. Why does a trained model still work with its last block skipped? ([06.8](/lesson/06.8))
# 5. How would you measure what rotary positions are worth, and with how many seeds?
#    ([06.12](/lesson/06.12))

# %% [reading]
# [[items]]
# title = "Test-Enhanced Learning"
# where = "Roediger and Karpicke 2006, Psychological Science 17(3)"
# look.zh = "两天和一周以后，重读的人与自测的人差多少；马上考却相反。"
# look.en = "How re-readers and self-testers compare after two days and a week; right away it is the other way round."
# [[items]]
# title = "How Does Batch Normalization Help Optimization?"
# where = "Santurkar et al. 2018, sections 2 and 3"
# look.zh = "他们怎样故意制造“协变量偏移”，而 BatchNorm 照样有效。"
# look.en = "How they bring covariate shift about on purpose, and BatchNorm helps all the same."
# [[items]]
# title = "The Annotated Transformer"
# where = "Rush 2018; Huang et al. 2022, nlp.seas.harvard.edu/annotated-transformer"
# look.zh = "原论文的逐段实现，找出归一化放在哪里，与论文的图是否一致。"
# look.en = "The paper implemented paragraph by paragraph: where does the norm stand, and is that what the paper's figure shows?"
