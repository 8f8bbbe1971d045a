# %% [lesson]
# number = "07"
# minutes = 35
# title.zh = "训练循环"
# title.en = "The training loop"

# %% [md zh] why
# 到现在为止，权重都是别人训练好的。它们从哪里来？
#
# 训练只有五个动词，循环上千遍：**取**一批文字，**算**损失，**求**梯度，**走**一小步；每隔一阵，**评**一次。
# 这一课把循环完整地写出来，用你自己的文件，然后做一件很多教程不做的事：
# 暂停，再继续，而且结果与从未中断**逐位相同**。

# %% [md en] why
# So far the weights were there already. Where do they come from?
#
# Training has five verbs, over and over: **draw** a batch of text, **compute** the loss, **take**
# its gradient, **move** a little; and every now and then, **evaluate**. This lesson writes the loop
# out on your own file, and then does what many tutorials leave out: it pauses and goes on, and ends
# in **exactly the same bits** as if it had never stopped.

# %% [code] text
mine = text  # or your own file: open("my.txt", encoding="utf-8").read()

letters = sorted(set(mine))
number = {letter: i for i, letter in enumerate(letters)}
ids = np.array([number[letter] for letter in mine])
cut = int(0.9 * len(ids))
train_ids, val_ids = ids[:cut], ids[cut:]
V = len(letters)
print(
    f"{len(mine):,} characters, {V} different; {cut:,} to learn from, the rest to judge by"
)

# %% [md zh] split
# ## 取：一批文字
#
# 末尾的十分之一留作验证，训练永远不读它。
# 按位置切，而不是随机抽句子：相邻的句子彼此相似，随机抽会把答案漏进训练。
#
# **取一批**：随机选 $B$ 个起点，各截 $T+1$ 个字符；输入是前 $T$ 个，目标是后 $T$ 个，错开一位。
# 注意随机数只取决于（种子，第几步），不取决于之前抽过什么。后面的“逐位相同”全靠这一点。

# %% [md en] split
# ## Draw: a batch of text
#
# The last tenth is kept for validation, and training never reads it. It is cut off by position
# rather than drawn at random: neighbouring sentences are alike, and a random draw would leak the
# answers.
#
# **Draw**: choose $B$ starts, and cut $T+1$ characters at each. The first $T$ are the input, the
# last $T$ the targets, one place on. Note that the random numbers depend on (seed, step) alone and
# not on what was drawn before. Going on in the same bits rests on that.

# %% [code] batch
import torch

T, B = 32, 16


def batch(step, seed=1):
    rng = np.random.default_rng((seed, step))
    starts = rng.integers(0, len(train_ids) - T, B)
    rows = train_ids[starts[:, None] + np.arange(T + 1)]
    return torch.tensor(rows[:, :-1]), torch.tensor(rows[:, 1:])


x, y = batch(0)
print(x.shape, y.shape)
print(repr("".join(letters[i] for i in x[0])))
print(repr("".join(letters[i] for i in y[0])))

# %% [md zh] about-loss
# ## 算：损失
#
# 模型给正确的下一个字符的概率是 $p_i$，损失是 $-\ln p_i$ 的平均。
# 刚初始化的模型什么都不知道，每个字符约得 $1/V$，损失约为 $\ln V$。
# 这是训练的第一道检查：起点若远离 $\ln V$，多半是初始化或目标错位了。

# %% [md en] about-loss
# ## Compute: the loss
#
# The model gives the true next character the probability $p_i$; the loss is the mean
# of $-\ln p_i$. A fresh model knows nothing and gives each character about $1/V$, so its loss is
# about $\ln V$. That is the first check of any training: a start far from $\ln V$ mostly means a
# faulty initialisation or targets out of step.

# %% [formula] loss
# latex = 'L = -\frac{1}{n} \sum_{i=1}^{n} \ln(p_i)'
# code = "loss"
# names = {L = "L", n = "n", p_i = "p[i - 1]"}
# caption.zh = "交叉熵，单位 nat"
# caption.en = "Cross-entropy, in nats"

# %% [code] loss
small = pw.ModelConfig(
    vocab_size=V, context_length=T, n_layers=2, d_model=64, n_heads=4
)
torch.manual_seed(1)
net = pw.GPT(small)

chances = net(x).softmax(-1)  # (B, T, V)
p = chances.gather(-1, y[..., None]).flatten().detach().numpy()
n = len(p)
L = -np.log(p).sum() / n
print(f"loss {L:.3f}, ln V = {np.log(V):.3f}")

# %% [check] loss
expect(
    abs(L - np.log(V)) < 0.3,
    zh="刚初始化时损失应接近 ln V；目标是不是和输入错开了一位？",
    en="A fresh model's loss should be near ln V; are the targets one place on from the inputs?",
)

# %% [md zh] about-gradient
# ## 求：梯度
#
# `backward()` 给每个参数一个数：参数增加一点点，损失变多少。
# 不信就试：把某个权重加 $\epsilon$ 再减 $\epsilon$，看损失差多少。

# %% [md en] about-gradient
# ## Take: the gradient
#
# `backward()` gives each parameter one number: by how much the loss changes
# as the parameter grows a little. Try it: add $\epsilon$ to a weight, subtract $\epsilon$, and see
# how far apart the losses are.

# %% [formula] gradient
# latex = 'g = \frac{L_2 - L_1}{2 \epsilon}'
# code = "gradient"
# names = {g = "g", L_2 = "L_2", L_1 = "L_1", "\\epsilon" = "epsilon"}
# caption.zh = "用差分估计梯度，两边各走 ε"
# caption.en = "The gradient by differences, ε to either side"

# %% [code] gradient
from torch.nn.functional import cross_entropy


def loss_of(net, x, y):
    return cross_entropy(net(x).flatten(0, 1), y.flatten())


net.double()  # differences need more digits than float32 has
net.zero_grad()
loss_of(net, x, y).backward()
w, epsilon = net.blocks[0].feedforward.up.weight, 1e-4
with torch.no_grad():
    w[3, 5] += epsilon
    L_2 = loss_of(net, x, y).item()
    w[3, 5] -= 2 * epsilon
    L_1 = loss_of(net, x, y).item()
    w[3, 5] += epsilon
g = (L_2 - L_1) / (2 * epsilon)
print(f"by differences {g:.8f}, by backward() {w.grad[3, 5].item():.8f}")

# %% [check] gradient
expect(
    abs(g - w.grad[3, 5].item()) < 1e-6,
    zh="差分与 backward() 应一致：两次损失要用同一批数据、同样的 ε。",
    en="Differences and backward() should agree: both losses need the same batch and the same ε.",
)

# %% [md zh] about-adamw
# ## 走：AdamW
#
# 怎样走一小步？最简单的是 $w - \eta g$。AdamW 改了三处：
#
# 1. 不用这一步的梯度，用近来的平均 $m$，少受一批数据摆布；
# 2. 除以近来梯度大小的平均 $\sqrt v$，于是每个参数的步长都差不多是 $\eta$，不论梯度大小；
# 3. 每步另把权重缩小一点点（权重衰减），与梯度无关。
#
# $m$ 和 $v$ 从 0 起步，头几步偏小，所以要除以 $1-\beta^t$ 修正。

# %% [md en] about-adamw
# ## Move: AdamW
#
# How to move a little? The simplest is $w - \eta g$. AdamW differs in three ways:
#
# 1. not this step's gradient but a mean $m$ of recent ones, so that one batch has less say;
# 2. divided by $\sqrt v$, a mean of their recent size, so that every parameter moves by about
#    $\eta$, be its gradient large or small;
# 3. each step also shrinks the weight a little (weight decay), whatever the gradient.
#
# $m$ and $v$ start at 0 and are too small at first, hence the division by $1-\beta^t$.

# %% [formula] adamw-step
# latex = 'w_1 = w_0 (1 - \eta \lambda) - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}'
# code = "adamw-step"
# names = {w_1 = "w_1", w_0 = "w_0", "\\eta" = "eta", "\\lambda" = "lam", m = "m", v = "v", "\\beta_1" = "beta_1", "\\beta_2" = "beta_2", t = "t", "\\epsilon" = "epsilon"}
# caption.zh = "AdamW 的一步（Loshchilov 和 Hutter，2019，算法 2）"
# caption.en = "One step of AdamW (Loshchilov and Hutter 2019, algorithm 2)"

# %% [code] adamw-step
eta, lam, beta_1, beta_2, epsilon, t = 1e-3, 0.1, 0.9, 0.95, 1e-8, 1
w_0, g = np.array([0.5, -0.2, 0.1]), np.array([3.0, -0.01, 0.0002])
m = (1 - beta_1) * g  # from m = 0: beta_1 * 0 + (1 - beta_1) * g
v = (1 - beta_2) * g**2
m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)
w_1 = w_0 * (1 - eta * lam) - eta * m_hat / (np.sqrt(v_hat) + epsilon)
print("gradient", g, "moved by", w_1 - w_0 * (1 - eta * lam))

# %% [md zh] adamw-exercise
# 三个梯度相差一万倍，走的却都是 $\eta = 0.001$：这就是第 2 条。
#
# **练习**：把它写成能连走几步的函数。下面的写法忘了修正偏差；
# 检查会与 `torch.optim.AdamW` 走三步后的结果比较。

# %% [md en] adamw-exercise
# The three gradients differ by a factor of ten thousand, and all three moved by $\eta = 0.001$: that
# is point 2.
#
# **Exercise**: make it a function that can take several steps. As it stands it forgets to correct
# $m$ and $v$; the check compares it with `torch.optim.AdamW` after three steps.


# %% [code] adamw
def adamw(w, g, m, v, t, eta=1e-3, lam=0.1, beta_1=0.9, beta_2=0.95, epsilon=1e-8):
    """One step, t = 1, 2, 3, …; returns the new w, m and v."""
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    w = w * (1 - eta * lam) - eta * m / (np.sqrt(v) + epsilon)
    return w, m, v


# %% [solution] adamw
def adamw(w, g, m, v, t, eta=1e-3, lam=0.1, beta_1=0.9, beta_2=0.95, epsilon=1e-8):
    """One step, t = 1, 2, 3, …; returns the new w, m and v."""
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    m_hat, v_hat = m / (1 - beta_1**t), v / (1 - beta_2**t)
    w = w * (1 - eta * lam) - eta * m_hat / (np.sqrt(v_hat) + epsilon)
    return w, m, v


# %% [check] adamw
start = np.array([0.5, -0.2, 0.1])
theirs = torch.tensor(start, requires_grad=True)
judge = torch.optim.AdamW(
    [theirs], lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1
)
w_, m_, v_ = start.copy(), np.zeros(3), np.zeros(3)
gradients = [
    np.array([3.0, -0.01, 0.2]),
    np.array([-1.0, 0.02, 0.2]),
    np.array([0.5, 0.01, -0.1]),
]
for t_, g_ in enumerate(gradients, start=1):
    theirs.grad = torch.tensor(g_)
    judge.step()
    w_, m_, v_ = adamw(w_, g_, m_, v_, t_)
    if t_ == 1:
        first = np.abs(w_ - theirs.detach().numpy()).max()
if expect(
    first < 1e-9,
    zh="第一步就不同：m 和 v 要先分别除以 1 − β₁ᵗ 和 1 − β₂ᵗ，再代入。",
    en="The first step differs already: divide m by 1 − β₁ᵗ and v by 1 − β₂ᵗ before using them.",
):
    expect(
        np.allclose(w_, theirs.detach().numpy(), atol=1e-9),
        zh="第一步对，后面不对：返回的应是未修正的 m 和 v，修正只用于这一步。",
        en="Right at first, wrong later: return m and v uncorrected; the correction is for this"
        " step alone.",
    )

# %% [md zh] about-schedule
# ## 学习率先升后降
#
# 学习率 $\eta$ 也不是常数：先从 0 **升**上去（开头的 $v$ 还不可靠），再慢慢**降**下来（临近结尾要稳）。
# 最常用的降法是半个余弦，$q$ 从 0 走到 1：

# %% [md en] about-schedule
# ## The rate rises and falls
#
# The rate $\eta$ is no constant either: it **rises** from 0 (early on $v$ cannot be trusted), then
# slowly **falls** (to settle at the end). The usual fall is half a cosine, with $q$ going from 0
# to 1:

# %% [formula] cosine
# latex = 'r = f + (1 - f) \frac{1 + \cos(\pi q)}{2}'
# code = "cosine"
# names = {r = "r", f = "f", q = "q", "\\pi" = "np.pi"}
# caption.zh = "学习率占峰值的比例；f 是下限"
# caption.en = "The rate as a share of its peak; f is the floor"

# %% [code] cosine
f, q = 0.1, np.linspace(0, 1, 90)
r = f + (1 - f) * (1 + np.cos(np.pi * q)) / 2
warmup = np.arange(1, 11) / 11
plot({"rate": [*warmup, *r]}, xlabel="step", ylabel="share of the peak")

# %% [md zh] about-evaluate
# ## 评：整个验证集
#
# 在训练没读过的文字上算损失。
# 用整个验证集，每个字符恰好预测一次，就没有运气成分；随机抽几批来估计，数字自己就会抖：

# %% [md en] about-evaluate
# ## Evaluate: the whole split
#
# Take the loss on text that training never reads. Over the whole validation split, with
# each character predicted exactly once, there is no luck in the figure. A few random batches give
# an estimate that trembles by itself:


# %% [code] evaluate
@torch.no_grad()
def evaluate(net):
    net.eval()
    total, count = 0.0, 0
    for start in range(0, len(val_ids) - 1, T):
        row = torch.tensor(val_ids[start : start + T + 1])[None]
        total += cross_entropy(
            net(row[:, :-1])[0], row[0, 1:], reduction="sum"
        ).item()
        count += row.shape[1] - 1
    net.train()
    return total / count


guesses = []
rng = np.random.default_rng(0)
for _ in range(20):
    rows = val_ids[rng.integers(0, len(val_ids) - T, 4)[:, None] + np.arange(T + 1)]
    rows = torch.tensor(rows)
    guesses.append(loss_of(net, rows[:, :-1], rows[:, 1:]).item())
print(
    f"whole split {evaluate(net):.4f}; 20 estimates of 4 windows: sd {np.std(guesses):.4f}"
)

# %% [md zh] loop
# ## 循环
#
# 五个动词凑齐了，循环本身反而最短（约需 3 至 10 秒）：

# %% [md en] loop
# ## The loop
#
# With the five verbs ready, the loop itself is the shortest part (it takes 3 to 10 seconds):


# %% [code] train
def begin(seed=1):
    torch.manual_seed(seed)
    net = pw.GPT(small)
    return net, torch.optim.AdamW(
        net.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.1
    )


def rate(step, total, peak=4e-3, warmup=20):
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return peak * (
        0.1 + 0.9 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2
    )


def train(net, optimizer, first, last, total):
    for step in range(first, last):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, total)
        loss = loss_of(net, *batch(step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        seen.append(loss.item())


seen, judged = [], {}
net, optimizer = begin()
for step in range(0, 300, 50):
    train(net, optimizer, step, step + 50, 300)
    judged[step + 50] = evaluate(net)
    print(
        f"{step + 50:3}: train {np.mean(seen[-50:]):.3f}, validation {judged[step + 50]:.3f}"
    )

# %% [check] train
expect(
    judged[300] < np.log(V) - 0.8,
    zh="300 步后验证损失应比 ln V 低不少；文本太短（至少几千字）时会降不下去。",
    en="After 300 steps the validation loss should be well below ln V; a text that is too short (it"
    " needs some thousands of characters) does not get there.",
)

# %% [md zh] clip
# `clip_grad_norm_` 是保险：梯度的总长超过 1 就按比例缩到 1，免得一批怪数据把权重甩出去。
#
# **写点东西**：取最后一个位置的概率，抽一个，接上，再来。

# %% [md en] clip
# `clip_grad_norm_` is insurance: a gradient longer than 1 is scaled down to 1, so that one odd batch
# cannot throw the weights far off.
#
# **Write something**: take the last place's probabilities, draw one, append, again.


# %% [code] sample
@torch.no_grad()
def write(net, start, count=200, temperature=0.8, seed=1):
    net.eval()
    draw = torch.Generator().manual_seed(seed)
    row = torch.tensor([[number[letter] for letter in start]])
    for _ in range(count):
        p = (net(row[:, -T:])[:, -1] / temperature).softmax(-1)
        row = torch.cat([row, torch.multinomial(p, 1, generator=draw)], 1)
    net.train()
    return "".join(letters[i] for i in row[0])


print(write(net, mine[:1]))

# %% [md zh] about-resume
# ## 暂停与继续
#
# 要存下什么，才能从中间接着走，而且和没停过一样？
#
# **练习**：下面的 `resume` 只装回了权重。检查会让它先走 10 步、存档、再走 10 步，
# 与一口气走 20 步的权重逐位比较。

# %% [md en] about-resume
# ## Pause and go on
#
# What has to be kept, to go on from the middle as if nothing had happened?
#
# **Exercise**: `resume` below brings back the weights only. The check takes 10 steps, saves, takes
# 10 more, and compares every bit with 20 steps in one go.

# %% [code] resume
import copy


def save(net, optimizer, step):
    kept = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
    }
    return copy.deepcopy(kept)


def resume(kept):
    """The model, its optimizer and the step to go on from."""
    net, optimizer = begin(seed=99)
    net.load_state_dict(kept["net"])
    return net, optimizer, 0


# %% [solution] resume
import copy


def save(net, optimizer, step):
    kept = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
    }
    return copy.deepcopy(kept)


def resume(kept):
    """The model, its optimizer and the step to go on from."""
    net, optimizer = begin(seed=99)
    net.load_state_dict(kept["net"])
    optimizer.load_state_dict(kept["optimizer"])
    return net, optimizer, kept["step"]


# %% [check] resume
straight, its_optimizer = begin()
train(straight, its_optimizer, 0, 20, 300)
halfway, its_optimizer = begin()
train(halfway, its_optimizer, 0, 10, 300)
again, its_optimizer, at = resume(save(halfway, its_optimizer, 10))
expect(
    at == 10,
    zh=f"应从第 10 步接着走，现在从第 {at} 步：步数决定读哪一批、学习率多大。",
    en=f"It should go on from step 10, not {at}: the step decides which batch is read and the rate.",
)
expect(
    len(its_optimizer.state_dict()["state"]) > 0,
    zh="优化器的 m 和 v 丢了：刚继续的几步会像训练刚开头那样走。",
    en="The optimizer's m and v are lost: the next steps move as if training had just begun.",
)
train(again, its_optimizer, 10, 20, 300)
expect(
    all(map(torch.equal, straight.parameters(), again.parameters())),
    zh="走完 20 步，权重与没中断的不是逐位相同。",
    en="After 20 steps the weights are not bit for bit those of the run that never stopped.",
)

# %% [md zh] resume-read
# 要存的有三样：权重、优化器的记忆（$m$、$v$）、步数。随机数不用存，因为每步的随机数由（种子，步数）算出。
#
# Partwise 的循环就是这个样子，只多了些防护：断电也不会留下写了一半的文件，梯度出现无穷大会指出是哪一层。
# 一行命令：`partwise train my.txt`，随时 Ctrl+C；`partwise resume` 接着走。

# %% [md en] resume-read
# Three things are kept: the weights, the optimizer's memory ($m$ and $v$), the step. Random states
# need not be: each step's random numbers follow from (seed, step).
#
# Partwise's own loop is this one with some protection: a power cut leaves no half-written file, and
# a gradient that is infinite is traced to its layer. In one line: `partwise train my.txt`, Ctrl+C
# whenever you like, and `partwise resume` goes on.

# %% [widget] loop-live
# name = "TrainLoop"
# label.zh = "在你的文件上训练：暂停、继续、抽样"
# label.en = "Train on your own file: pause, go on, sample"

# %% [quiz] order
# kind = "order"
# question.zh = "把一步排好。"
# question.en = "Put one step in order."
# [[items]]
# zh = "取一批，前向，算损失"
# en = "Draw a batch, forward, loss"
# feedback.zh = "损失要先有，才谈得上梯度。"
# feedback.en = "There must be a loss before there is a gradient."
# [[items]]
# zh = "清空旧梯度，`backward()`"
# en = "Clear old gradients, `backward()`"
# feedback.zh = "不清空，新梯度会加在旧的上面。梯度累积正是故意不清。"
# feedback.en = "Not cleared, new gradients add to the old. Gradient accumulation leaves them on purpose."
# [[items]]
# zh = "裁剪梯度"
# en = "Clip the gradient"
# feedback.zh = "必须在求出梯度之后、使用之前。"
# feedback.en = "After it is known and before it is used."
# [[items]]
# zh = "`optimizer.step()`"
# en = "`optimizer.step()`"
# feedback.zh = "最后才动权重。"
# feedback.en = "Only now do the weights move."

# %% [quiz] epoch
# kind = "number"
# question.zh = "训练集有 1,003,854 个字符，批次 64，上下文 256。读完一遍约需多少步？（取整）"
# question.en = "A training split has 1,003,854 characters; batch 64, context 256. About how many steps read it once? (Whole number.)"
# answer = 61
# tolerance = 1
# expression = "1003854 / (64 * 256)"
# feedback.right.zh = "对。第 6 级训练 5000 步，等于把莎士比亚读了 80 多遍：所以它会过拟合。"
# feedback.right.en = "Yes. Rung 6 takes 5,000 steps and reads Shakespeare over 80 times: that is why it overfits."
# feedback.wrong.zh = "一步读 $64 \\times 256$ 个字符。"
# feedback.wrong.en = "One step reads $64 \\times 256$ characters."

# %% [quiz] keep
# kind = "many"
# question.zh = "用 AdamW，要想逐位相同地继续，必须存下什么？"
# question.en = "With AdamW, what must be kept to go on bit for bit?"
# [[options]]
# zh = "权重"
# en = "The weights"
# right = true
# feedback.zh = "当然。"
# feedback.en = "Of course."
# [[options]]
# zh = "优化器的 $m$ 和 $v$"
# en = "The optimizer's $m$ and $v$"
# right = true
# feedback.zh = "对。丢了它们，继续后的头几步会走得不一样，损失曲线常有一个小尖。"
# feedback.en = "Yes. Without them the first steps differ, often with a small spike in the loss."
# [[options]]
# zh = "做到第几步"
# en = "The number of the step"
# right = true
# feedback.zh = "对：它决定读哪一批、学习率多大、偏差修正多少。"
# feedback.en = "Yes: it decides the batch, the rate and the correction of $m$ and $v$."
# [[options]]
# zh = "最后一次的梯度"
# en = "The last gradient"
# right = false
# feedback.zh = "不用：它已经用掉了，留下的影响都在 $m$ 和 $v$ 里。"
# feedback.en = "No: it has been used, and what remains of it is in $m$ and $v$."

# %% [quiz] start-loss
# kind = "choice"
# question.zh = "65 个字符，刚初始化的模型损失是 $11$。最可能的原因？"
# question.en = "65 characters, and a fresh model's loss is $11$. What is the likeliest reason?"
# [[options]]
# zh = "正常，还没开始训练"
# en = "That is normal; nothing is trained yet"
# right = false
# feedback.zh = "一无所知的模型应是 $\\ln 65 \\approx 4.17$。11 比瞎猜差得多。"
# feedback.en = "A model that knows nothing has $\\ln 65 \\approx 4.17$. 11 is far worse than guessing."
# [[options]]
# zh = "初始权重太大，输出自信地错了"
# en = "First weights too large: it is confidently wrong"
# right = true
# feedback.zh = "对：logits 太大，softmax 就把赌注押在随便哪个字符上。"
# feedback.en = "Yes: with large logits, softmax puts its bet on some arbitrary character."
# [[options]]
# zh = "学习率太高"
# en = "The rate is too high"
# right = false
# feedback.zh = "一步都还没走，学习率还没起作用。"
# feedback.en = "Not one step was taken; the rate has had no say yet."

# %% [reading]
# [[items]]
# title = "nanoGPT"
# where = "Karpathy 2022, train.py"
# look.zh = "找出五个动词各在哪几行；它的评估用随机批次，想想会差多少。"
# look.en = "Find the lines of each of the five verbs. It evaluates on random batches: how far off may that be?"
# [[items]]
# title = "Decoupled Weight Decay Regularization"
# where = "Loshchilov and Hutter 2019, sections 1 and 2"
# look.zh = "为什么把衰减加进梯度（L2）在 Adam 里不等于权重衰减。"
# look.en = "Why adding decay to the gradient (L2) is not weight decay in Adam."
# [[items]]
# title = "partwise/training/loop.py"
# where = "partwise"
# look.zh = "一个生成器，从上读到下：设置、接着走、评估、保存、一步、汇报。"
# look.en = "One generator, read from top to bottom: set up, go on, evaluate, save, step, tell."
