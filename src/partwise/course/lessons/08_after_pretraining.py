# %% [lesson]
# number = "08"
# minutes = 35
# title.zh = "预训练之后"
# title.en = "After pre-training"

# %% [md zh] why
# 你的模型已经会接着写了。可它不会回答问题，也不听指令。从这里到聊天助手，还差什么？
#
# 先与 GPT-2、GPT-3 比一比，看哪些只是规模；再做三件规模之外的事，每件都在你的小模型上真的做一遍：
# **微调**（换一种文字接着学）、**指令微调**（只在回答上算损失）、**偏好学习**（从“这个比那个好”里学）。

# %% [md en] why
# Your model can carry a text on. It cannot answer a question, and it does not do as it is told. What
# is missing between this and an assistant?
#
# First a comparison with GPT-2 and GPT-3, to see what is scale and nothing else. Then three things
# that are not scale, each really done on your small model: **fine-tuning** (go on learning from
# another text), **instruction tuning** (count the loss on answers only), and **preference
# learning** (learn from "this one is better than that").

# %% [code] beside
from partwise.model.parameters import count_parameters
from partwise.model.presets import preset

read = {
    "ladder-6": 5000 * 64 * 256,
    "gpt2-xl": None,
    "gpt3-175b": 300e9,
    "llama-65b": 1.4e12,
}
print(
    f"{'':>10} {'N':>3} {'d':>6} {'context':>7} {'tokens':>7} {'parameters':>16} {'read':>8} {'each':>5}"
)
for name, D in read.items():
    c = preset(name)
    P = count_parameters(c)
    seen, each = ("?", "?") if D is None else (f"{D:.1e}", f"{D / P:.1f}")
    print(f"{name:>10} {c.n_layers:3} {c.d_model:6} {c.context_length:7}", end=" ")
    print(f"{c.vocab_size:7} {P:16,} {seen:>8} {each:>5}")

# %% [md zh] beside-read
# ## 只是规模的部分
#
# 最后一列是每个参数读过几个词元。
# GPT-3 读了 3000 亿个词元（Brown 等，2020），每个参数不到 2 个；
# Hoffmann 等（2022）算出同样的计算量下 20 个左右更划算；LLaMA-65B 读了 1.4 万亿（Touvron 等，2023）。
# GPT-2 的论文只说数据是 40 GB 文字，没有说读了多少词元。
#
# 第 6 级的 7.6 看着不少，可那是同样的一百万字符读了 82 遍。
#
# **结构上**前三者几乎一样：pre-norm 的块、学习到的位置、GELU 或 ReLU。
# 差别在数据、词元和规模。你已经懂了 GPT-3 的结构。

# %% [md en] beside-read
# ## What is scale alone
#
# The last column says how many tokens were read for each parameter. GPT-3 read 300 billion (Brown et
# al. 2020), fewer than 2 a parameter; Hoffmann et al. (2022) found about 20 the better use of the
# same computing; LLaMA-65B read 1.4 trillion (Touvron et al. 2023). GPT-2's paper says that its
# data was 40 GB of text, not how many tokens were read.
#
# Rung 6's 7.6 looks like a good number, but it is the same million characters 82 times over.
#
# **In structure** the first three are nearly the same: pre-norm blocks, learned positions, GELU or
# ReLU. They differ in data, tokens and scale. You understand the structure of GPT-3 already.

# %% [md zh] about-bits
# ## 损失怎样比
#
# 损失能直接比吗？不能：一个按字符算，一个按 BPE 词元算，一个词元约合四个字节。要先换成每字节多少比特：

# %% [md en] about-bits
# ## How to compare losses
#
# Can losses be compared? Not as they are: one counts a character, another a BPE token of about four
# bytes. Turn both into bits a byte first:

# %% [formula] bits
# latex = 'b = \frac{L}{c \ln(2)}'
# code = "bits"
# names = {b = "b", L = "L", c = "c"}
# caption.zh = "L 是每词元的损失（nat），c 是每词元平均几个字节"
# caption.en = "L is the loss a token (nats), c the bytes of a token on average"

# %% [code] bits
L, c = 1.48, 1.0  # rung 6 as published: a token is a character, a byte here
b = L / (c * math.log(2))
print(
    f"rung 6: {b:.2f} bits a byte; a BPE model with 4 bytes a token and loss 3.0: ",
    end="",
)
print(f"{3.0 / (4 * math.log(2)):.2f}")

# %% [md zh] bits-read
# 损失 3.0 的 BPE 模型其实比损失 1.48 的字符模型好一倍。
# GPT-2 XL 没在那份文字上训练过，在 enwik8 上仍有 0.93 比特每字节（Radford 等，2019，表 3）。
# 不过文字不同，难度就不同，跨文字的比较只能看个大概。
#
# ## 微调
#
# **微调**就是 [07](/lesson/07) 的循环，换一种文字，学习率小一些，从训练好的权重出发。
# 我们拿 NumPy 的说明文字来教（约 5 至 8 秒），前后各写一段，并在新旧两种文字上都量损失。

# %% [md en] bits-read
# A BPE model with loss 3.0 is in truth twice as good as a character model with loss 1.48. GPT-2 XL
# had never been trained on it and still reached 0.93 bits a byte on enwik8 (Radford et al. 2019,
# table 3). But other texts are harder or easier, so across texts this is a rough guide only.
#
# ## Fine-tuning
#
# **Fine-tuning** is the loop of [07](/lesson/07) with another text and a smaller rate, starting from the
# trained weights. We teach NumPy's own documentation (5 to 8 seconds), let the model write before
# and after, and measure the loss on both texts.

# %% [code] fine-tune
import copy
import time

import torch
from torch.nn.functional import cross_entropy, log_softmax, logsigmoid

from partwise.sampling.generate import complete

manual = "\n".join(getattr(np, name).__doc__ or "" for name in sorted(dir(np)))
new_ids = tokenizer.encode(manual[:400_000], unknown="skip").astype(np.int64)
old_ids = tokenizer.encode(text).astype(np.int64)
T = min(config.context_length, 48)
held = new_ids[-len(new_ids) // 10 :]
new_ids = torch.tensor(new_ids[: -len(held)])


def fine_tune(net, steps=120, lr=1e-3, seconds=8.0):
    rng, done = np.random.default_rng(1), 0
    optimizer = torch.optim.AdamW(
        [w for w in net.parameters() if w.requires_grad], lr=lr
    )
    until = time.process_time() + seconds  # a large model takes fewer steps
    while done < steps and time.process_time() < until:
        at = torch.tensor(rng.integers(0, len(new_ids) - T, 16))[
            :, None
        ] + torch.arange(T + 1)
        rows = new_ids[at]
        loss = cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
    return done


def write(net):
    net.eval()
    return complete(
        net, tokenizer, "\n", pw.SampleConfig(chars=120, temperature=0.7, seed=2)
    )[0]


tuned = copy.deepcopy(model)
print("before:", repr(write(tuned)))
steps = fine_tune(tuned)
print(f"after {steps} steps:", repr(write(tuned)))
losses = {}
for name, ids in (("new text", held), ("old text", old_ids)):
    losses[name] = val_loss(model, ids), val_loss(tuned, ids)
    print(f"{name}: {losses[name][0]:.2f} -> {losses[name][1]:.2f}")

# %% [check] fine-tune
expect(
    losses["new text"][1] < losses["new text"][0],
    zh="微调之后，新文字上的损失应当下降；学习率或步数是不是改得太小了？",
    en="After fine-tuning the loss on the new text should be lower; are the rate or the steps too"
    " small?",
)

# %% [md zh] forgetting
# ## 遗忘与 LoRA
#
# 新文字上好了许多，旧文字上却变差了：模型**忘了**。
# 权重只有一套，没有什么告诉它“莎士比亚也要记着”。这叫灾难性遗忘（McCloskey 和 Cohen，1989）。
#
# 常用的对策：学习率再小些、少走几步、训练时掺一些旧文字，或者干脆**不动旧权重**，只在旁边加一点点：LoRA。
# 矩阵 $W$ 冻结，另学一个秩很低的修正 $BA$：

# %% [md en] forgetting
# ## Forgetting, and LoRA
#
# Much better on the new text, and worse on the old: the model **forgot**. There is one set of
# weights, and nothing told it to keep Shakespeare in mind. This is catastrophic forgetting
# (McCloskey and Cohen 1989).
#
# Usual remedies: a smaller rate, fewer steps, some old text mixed in, or **leave the old weights
# alone** and add a little beside them: LoRA. The matrix $W$ is frozen, and a correction $BA$ of low
# rank is learned:

# %% [formula] lora
# latex = 'y = x W^\top + \frac{\alpha}{r} x A^\top B^\top'
# code = "lora"
# names = {y = "y", x = "x", W = "W", A = "A", B = "B", "\\alpha" = "alpha", r = "r"}
# caption.zh = "LoRA（Hu 等，2021，4.1 节）；B 从 0 开始，所以一开始什么都没变"
# caption.en = "LoRA (Hu et al. 2021, section 4.1); B starts at 0, so nothing changes at first"

# %% [code] lora
rng, d, e, r, alpha = np.random.default_rng(1), 80, 320, 4, 8
W, A = rng.normal(size=(e, d)), rng.normal(size=(r, d)) / np.sqrt(d)
B, x = np.zeros((e, r)), rng.normal(size=(5, d))
y = x @ W.T + alpha / r * x @ A.T @ B.T
print(f"W: {W.size:,} numbers, A and B: {A.size + B.size:,}")

small = copy.deepcopy(model)
pw.add_lora(small, pw.LoraConfig(rank=4))
count = sum(w.numel() for w in small.parameters() if w.requires_grad)
print(f"to train: {count:,} of {sum(w.numel() for w in small.parameters()):,}")
steps = fine_tune(small, steps=80, lr=4e-3, seconds=5.0)
small.eval()
print(
    f"{steps} steps: new text {val_loss(small, held):.2f}, old text {val_loss(small, old_ids):.2f}"
)

# %% [md zh] lora-read
# 旧的权重一个字节也没变：拿掉 $A$、$B$，就是原来的模型。一套大权重可以配许多份小修正，一件事一份。
# 但**带着**修正时它照样会忘：修正改的是同一个函数。

# %% [md en] lora-read
# Not a byte of the old weights has changed: without $A$ and $B$, it is the old model. One large set
# of weights can serve with many small corrections, one for each job. But **with** the correction on
# it forgets all the same: the function that it computes has changed.

# %% [widget] fine-tuning
# name = "FineTune"
# label.zh = "微调：给你的模型换一种文字，看前后"
# label.en = "Fine-tune your model on another text: before and after"

# %% [md zh] instructions
# ## 指令微调
#
# **指令微调**：文字换成“问题 + 回答”的对话，循环还是那个循环（Wei 等，2022；Ouyang 等，2022）。
# 常见的一处改动：损失只算在**回答**上，问题只当上文，因为我们不想教它提问。
#
# **练习**：写 `answer_loss`。行里前 `begin` 个词元是问题，其余是回答；`logits[t]` 预测的是第 `t + 1` 个。
# 想清楚边界：问题的最后一个位置，预测的是谁？

# %% [md en] instructions
# ## Instruction tuning
#
# **Instruction tuning**: the text becomes dialogues of question and answer, and the loop stays (Wei
# et al. 2022; Ouyang et al. 2022). One usual change: the loss counts on the **answer** only. The
# question is context, as we do not mean to teach asking.
#
# **Exercise**: write `answer_loss`. The first `begin` tokens of the row are the question, the rest
# the answer; `logits[t]` predicts token `t + 1`. Think about the edge: what does the question's
# last place predict?


# %% [code] answer-loss
def answer_loss(logits, row, begin):
    """logits (T, V), row (T,): the mean loss of the tokens row[begin:]."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(p[np.arange(len(row) - 1), row[1:]]).mean()


# %% [solution] answer-loss
def answer_loss(logits, row, begin):
    """logits (T, V), row (T,): the mean loss of the tokens row[begin:]."""
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    places = np.arange(begin - 1, len(row) - 1)
    return -np.log(p[places, row[places + 1]]).mean()


# %% [check] answer-loss
rng_ = np.random.default_rng(0)
row_, logits_ = rng_.integers(0, 7, 10), rng_.normal(size=(10, 7))
p_ = np.exp(logits_) / np.exp(logits_).sum(-1, keepdims=True)
each_ = -np.log(p_[np.arange(9), row_[1:]])
got_ = answer_loss(logits_, row_, 6)
expect(
    abs(got_ - each_.mean()) > 1e-6,
    zh="问题里的词元也算进去了：只该算 row[begin:] 这些词元的损失。",
    en="The question's tokens are counted too; only those of row[begin:] should be.",
)
expect(
    abs(got_ - each_[6:].mean()) > 1e-6,
    zh="差一位：第一个回答词元 row[begin] 是由 logits[begin − 1] 预测的，它也要算。",
    en="One off: the first token of the answer, row[begin], is predicted by logits[begin − 1], and"
    " it counts.",
)
expect(
    abs(got_ - each_[5:].mean()) < 1e-9,
    zh="应是 logits[begin − 1] 到 logits[T − 2] 这些位置损失的平均。",
    en="It should be the mean over the places logits[begin − 1] to logits[T − 2].",
)

# %% [md zh] preferences
# ## 偏好学习
#
# **偏好学习**：什么是“好回答”很难写成范文，却容易比较：这个比那个好（Christiano 等，2017）。
# InstructGPT 先用比较训练一个打分模型，再用强化学习去追高分；
# 人们更喜欢它 13 亿参数的版本，胜过 1750 亿参数的 GPT-3（Ouyang 等，2022）。
#
# DPO（Rafailov 等，2023）省去打分模型，直接在成对的回答上算损失。
# 记 $a$ 为现在的模型给回答的对数概率，$b$ 为原来的模型给的；$w$ 是被选中的，$l$ 是落选的：

# %% [md en] preferences
# ## Preference learning
#
# **Preference learning**: a good answer is hard to write down as a model text, but easy to compare:
# this one is better than that (Christiano et al. 2017). InstructGPT first trains a model that
# scores, from comparisons, and then goes after high scores by reinforcement learning; people
# preferred its version of 1.3 billion parameters to GPT-3 with 175 billion (Ouyang et al. 2022).
#
# DPO (Rafailov et al. 2023) does without a scoring model and takes a loss on pairs of answers. Let
# $a$ be the log-probability that the model now gives an answer, $b$ what the original model gave;
# $w$ is the answer that won, $l$ the one that lost:

# %% [formula] dpo
# latex = 'L = -\ln(\sigma(\beta (a_w - b_w) - \beta (a_l - b_l)))'
# code = "dpo"
# names = {L = "L", "\\sigma" = "sigma", "\\beta" = "beta", a_w = "a_w", b_w = "b_w", a_l = "a_l", b_l = "b_l"}
# caption.zh = "DPO：让选中的比落选的涨得多，同时以原来的模型为基准（Rafailov 等，2023，式 7）"
# caption.en = "DPO: the winner should gain more than the loser, measured from the original model (Rafailov et al. 2023, equation 7)"


# %% [code] dpo
def sigma(z):
    return 1 / (1 + np.exp(-z))


beta, a_w, b_w, a_l, b_l = 0.1, -30.0, -32.0, -41.0, -38.0
L = -np.log(sigma(beta * (a_w - b_w) - beta * (a_l - b_l)))
print(f"{L:.3f}; at the start, a = b: {-np.log(sigma(0)):.3f}")

# %% [md zh] judge
# ## 一个有怪癖的评判者
#
# 起点总是 $\ln 2$：两者涨得一样多。
#
# 在小模型上试一次。评判者有个怪癖：讨厌最常见的那个词元（在莎士比亚里是空格）。
# 落选的是原文，选中的是删掉它的原文。没有一条规则写进模型，只有 64 对比较（约 5 至 8 秒）：

# %% [md en] judge
# ## A judge with a quirk
#
# It always starts at $\ln 2$: both have gained the same.
#
# Try it on the small model. The judge has a quirk: they hate the commonest token (in Shakespeare,
# the space). The loser is the text as it stands, the winner the same without that token. No rule
# goes into the model, just 64 comparisons (5 to 8 seconds):

# %% [code] prefer
hated = int(np.bincount(old_ids).argmax())
ask = min(12, 3 * T // 7)
answer = min(16, T + 1 - ask)
starts = np.random.default_rng(2).integers(0, len(old_ids) - 100, 64)
losers = np.stack([old_ids[s : s + ask + answer] for s in starts])
without = [
    [i for i in old_ids[s + ask : s + 100] if i != hated][:answer] for s in starts
]
winners = np.concatenate([losers[:, :ask], np.array(without)], 1)
winners, losers = torch.tensor(winners), torch.tensor(losers)


def log_p(net, rows):
    """The log-probability of what follows the first `ask` tokens, (B,)."""
    chances = log_softmax(net(rows[:, :-1]), -1).gather(-1, rows[:, 1:, None])[
        ..., 0
    ]
    return chances[:, ask - 1 :].sum(1)


def share_hated(net):
    net.eval()
    said = complete(
        net, tokenizer, "\n", pw.SampleConfig(chars=100, count=8, seed=1)
    )
    ids = tokenizer.encode("".join(said))
    return (ids == hated).mean(), said[0]


polite = copy.deepcopy(model)
with torch.no_grad():
    b_w, b_l = log_p(polite, winners), log_p(polite, losers)
before = share_hated(polite)
optimizer = torch.optim.AdamW(polite.parameters(), lr=3e-4)
until = time.process_time() + 8
for step in range(20):
    gain_w, gain_l = log_p(polite, winners) - b_w, log_p(polite, losers) - b_l
    loss = -logsigmoid(0.1 * gain_w - 0.1 * gain_l).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 4:
        print(
            f"{step + 1:2}: loss {loss.item():.3f}, winners {gain_w.mean().item():+.1f},",
            end=" ",
        )
        print(f"losers {gain_l.mean().item():+.1f}")
    if time.process_time() > until:
        break
after = share_hated(polite)
print(f"share of {tokenizer.decode([hated])!r}: {before[0]:.0%} -> {after[0]:.0%}")
print(repr(after[1]))
print(
    f"loss on the text: {val_loss(model, old_ids):.2f} -> {val_loss(polite, old_ids):.2f}"
)

# %% [check] prefer
expect(
    loss.item() < math.log(2) and after[0] < before[0],
    zh="损失应从 ln 2 往下走，被讨厌的词元应变少；请恢复原来的步数和学习率。",
    en="The loss should fall from ln 2 and the hated token should get rarer; restore the steps and"
    " the rate.",
)

# %% [md zh] prefer-read
# 只看比较，模型就学会了评判者的怪癖。再看两样代价：
#
# - 它在原文上的损失变差了许多。
# - 打印的数里，落选的一路下跌，选中的往往也跟着跌到了原来以下：DPO 只要求**差**变大，没说选中的要涨。
#
# 追着分数走得太远，别的就会走样，所以要以原来的模型为基准（式中的 $b$），并且适可而止。
#
# 之后还有什么？答案能自动核对的题目（数学、代码），可以直接拿对错当奖励（DeepSeek-AI，2025）。
# 花样很多，底子没变：同样的块，同样的循环，换了损失和数据。

# %% [md en] prefer-read
# From comparisons alone the model has learned the judge's quirk. See two prices as well:
#
# - Its loss on the text got much worse.
# - In the figures, losers fall all the way, and winners often end below where they began: DPO asks
#   for a larger **difference** and not for winners to gain.
#
# Gone too far after a score, the rest goes out of shape; hence the original model as the measure
# (the $b$ of the formula), and an early stop.
#
# What else follows? Where answers can be checked by a program (mathematics, code), right or wrong
# can be the reward itself (DeepSeek-AI 2025). There are many variations on one ground: the same
# blocks and the same loop, with another loss and other data.

# %% [quiz] structure
# kind = "choice"
# question.zh = "第 6 级与 GPT-3 的差别，主要**不**在哪里？"
# question.en = "Where do rung 6 and GPT-3 **not** differ much?"
# [[options]]
# zh = "块的结构"
# en = "The structure of a block"
# right = true
# feedback.zh = "对：都是 pre-norm、多头注意力、四倍宽的前馈层和残差。"
# feedback.en = "Right: pre-norm, several heads, a fourfold feed-forward layer and residuals in both."
# [[options]]
# zh = "读过的文字"
# en = "The text that was read"
# right = false
# feedback.zh = "一百万字符读 82 遍，对 3000 亿词元，几乎不重复。"
# feedback.en = "A million characters 82 times, against 300 billion tokens, hardly repeated."
# [[options]]
# zh = "词元"
# en = "Tokens"
# right = false
# feedback.zh = "65 个字符，对 50,257 个 BPE 词元。"
# feedback.en = "65 characters against 50,257 BPE tokens."
# [[options]]
# zh = "上下文长度"
# en = "Context length"
# right = false
# feedback.zh = "256 个字符，对 2048 个词元。"
# feedback.en = "256 characters against 2,048 tokens."

# %% [quiz] lora-count
# kind = "number"
# question.zh = "给一个 $4096 \\times 4096$ 的矩阵加秩为 8 的 LoRA，要训练多少个数？"
# question.en = "LoRA of rank 8 beside a matrix of $4096 \\times 4096$: how many numbers are trained?"
# answer = 65536
# expression = "8 * (4096 + 4096)"
# feedback.right.zh = "对，$r(d+e)$：只有整个矩阵的 0.4%。"
# feedback.right.en = "Yes, $r(d+e)$: 0.4 % of the matrix."
# feedback.wrong.zh = "$A$ 是 $8 \\times 4096$，$B$ 是 $4096 \\times 8$，加起来。"
# feedback.wrong.en = "$A$ is $8 \\times 4096$ and $B$ is $4096 \\times 8$; add them."

# %% [quiz] compare-loss
# kind = "choice"
# question.zh = "甲：字符级，损失 1.5。乙：BPE，损失 2.8，每词元约 4 字节。同一段文字，谁更好？"
# question.en = "A: characters, loss 1.5. B: BPE, loss 2.8, about 4 bytes a token. On the same text, which is better?"
# [[options]]
# zh = "甲，损失低"
# en = "A, its loss is lower"
# right = false
# feedback.zh = "单位不同：一个每字符，一个每四个字节。"
# feedback.en = "The units differ: one is a character, the other four bytes."
# [[options]]
# zh = "乙，换成每字节只有 0.7 nat"
# en = "B: it comes to 0.7 nats a byte"
# right = true
# feedback.zh = "对，$2.8 / 4 = 0.7$，不到甲的一半。"
# feedback.en = "Yes: $2.8 / 4 = 0.7$, less than half of A's."
# [[options]]
# zh = "没法比"
# en = "They cannot be compared"
# right = false
# feedback.zh = "同一段文字，换成每字节就能比。"
# feedback.en = "On the same text they can, a byte at a time."

# %% [quiz] stages
# kind = "many"
# question.zh = "关于预训练之后的各步，哪些对？"
# question.en = "What is true of the steps after pre-training?"
# [[options]]
# zh = "微调用的还是下一个词元的交叉熵"
# en = "Fine-tuning still uses the cross-entropy of the next token"
# right = true
# feedback.zh = "对，变的是文字和学习率。"
# feedback.en = "Yes; the text and the rate change."
# [[options]]
# zh = "指令微调要改模型结构"
# en = "Instruction tuning changes the model's structure"
# right = false
# feedback.zh = "不用：只是数据变成对话，损失常只算回答。"
# feedback.en = "No: the data become dialogues, and the loss mostly counts answers only."
# [[options]]
# zh = "DPO 不需要单独训练打分模型"
# en = "DPO needs no scoring model of its own"
# right = true
# feedback.zh = "对，但仍需要原来的模型作基准。"
# feedback.en = "Yes, but it does need the original model as its measure."
# [[options]]
# zh = "微调之后，模型在旧文字上也一定更好"
# en = "After fine-tuning the model is better on the old text too"
# right = false
# feedback.zh = "你刚量过：常常更差。"
# feedback.en = "You have just measured it: often worse."

# %% [reading]
# [[items]]
# title = "Language Models are Few-Shot Learners"
# where = "Brown et al. 2020, sections 1 and 2, figure 1.2"
# look.zh = "不微调，只在上文里给几个例子，模型就换了任务：例子多少与模型大小怎样相互作用。"
# look.en = "Without fine-tuning, a few examples in the context change the task: how do examples and model size interact?"
# [[items]]
# title = "Training language models to follow instructions with human feedback"
# where = "Ouyang et al. 2022, figure 2 and section 3"
# look.zh = "三个阶段各用什么数据、什么损失；哪里提到了在旧任务上变差。"
# look.en = "What data and what loss each of the three stages uses, and where getting worse at old tasks is discussed."
# [[items]]
# title = "Direct Preference Optimization"
# where = "Rafailov et al. 2023, sections 3 and 4"
# look.zh = "式 7 怎样从“追高分，但别离原模型太远”推出来。"
# look.en = "How equation 7 follows from going after a score without leaving the original model too far behind."
# [[items]]
# title = "LoRA: Low-Rank Adaptation of Large Language Models"
# where = "Hu et al. 2021, section 4; partwise/model/lora.py"
# look.zh = "为什么 B 从 0 开始，为什么可以事后并回 W。"
# look.en = "Why B starts at 0, and why it can be merged into W afterwards."
