# %% [lesson]
# number = "06.11"
# minutes = 35
# title.zh = "只用解码器，还是编码器加解码器"
# title.en = "Decoder-only, or encoder and decoder"

# %% [md zh] why
# GPT 叫“只用解码器”的模型，翻译论文里的 Transformer 却有编码器和解码器两半。差别在哪里？
#
# 先说结论，再来验证：**让一叠块成为解码器的，只是那张三角形的掩码。**
# 其余都一样：同样的注意力、前馈层、残差连接和归一化。

# %% [md en] why
# GPT is called a decoder-only model; the Transformer of the translation paper has two halves, an
# encoder and a decoder. What is the difference?
#
# The answer first, to be tested below: **what makes a stack of blocks a decoder is the triangular
# mask and nothing else.** All the rest is the same: attention, feed-forward, residual connections,
# norms.

# %% [code] leak
from dataclasses import replace

import torch

ids = val_ids[: min(32, config.context_length)]
place = 20 if len(ids) > 20 else len(ids) // 2
changed = ids.copy()
changed[place] = (changed[place] + 1) % config.vocab_size

unmasked = pw.GPT(replace(config, causal=False))
unmasked.load_state_dict(model.state_dict())
moved = {}
for name, net in (("with the mask", model), ("without it", unmasked)):
    before, after = observe(net, ids)["logits"], observe(net, changed)["logits"]
    moved[name] = np.flatnonzero(abs(after - before).max(-1) > 1e-6)
    print(f"{name}: places that moved when token {place} changed: {moved[name]}")

# %% [check] leak
expect(
    moved["with the mask"].min() == place and moved["without it"].min() < place,
    zh=f"有掩码时，第 {place} 个之前的输出应当一个都不变；没有掩码时应当会变。",
    en=f"With the mask nothing before place {place} should move; without it something should.",
)

# %% [md zh] leak-read
# ## 掩码
#
# 同样的权重，去掉掩码，第 20 个词元就影响了它**之前**的预测：未来泄漏到了过去。
# 这个“泄漏测试”很值得记住：改一个词元，看哪些输出动了。任何自己写的解码器都该过这一关。
#
# 掩码做的事是：在 softmax 之前，给未来的格子加上 $-\infty$，于是权重恰好是 0。

# %% [md en] leak-read
# ## The mask
#
# The same weights, the mask gone, and token 20 has changed predictions **before** it: the future
# leaks into the past. This leak test is worth remembering: change one token, see which outputs
# move. Every decoder that you write yourself should pass it.
#
# What the mask does: before softmax, it adds $-\infty$ where the future lies, so those weights are
# exactly 0.

# %% [formula] mask
# latex = 'A = \mathrm{softmax}(\frac{Q K^\top}{\sqrt{d_k}} + M)'
# code = "mask"
# names = {A = "A", Q = "Q", K = "K", d_k = "d_k", M = "M"}
# caption.zh = "练习：写出 M，让第 t 行只看得见第 0 到第 t 列"
# caption.en = "Exercise: write M so that row t sees columns 0 to t and no more"

# %% [code] mask
T, d_k = 5, 8
rng = np.random.default_rng(1)
Q, K = rng.normal(size=(T, d_k)), rng.normal(size=(T, d_k))
M = np.zeros((T, T))
scores = Q @ K.T / np.sqrt(d_k) + M
A = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
print(A.round(2))

# %% [solution] mask
T, d_k = 5, 8
rng = np.random.default_rng(1)
Q, K = rng.normal(size=(T, d_k)), rng.normal(size=(T, d_k))
M = np.where(np.arange(T)[None, :] > np.arange(T)[:, None], -np.inf, 0)
scores = Q @ K.T / np.sqrt(d_k) + M
A = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
print(A.round(2))

# %% [check] mask
if expect(
    np.isfinite(A).all(),
    zh="有一行全被遮住了，softmax 成了 0/0：每个词元至少要看得见自己，对角线不能遮。",
    en="A row is hidden altogether and softmax is 0/0: every token must see itself, so the diagonal"
    " stays open.",
):
    expect(
        np.allclose(np.triu(A, 1), 0),
        zh="对角线右上方还有权重：那是未来。M 在列号大于行号处应为 −∞。",
        en="There are weights above the diagonal: that is the future. M should be −∞ where the"
        " column is greater than the row.",
    )
    expect(
        (np.tril(A)[np.tril_indices(T)] > 0).all(),
        zh="过去也被遮住了一些：对角线及左下方的权重都应大于 0。",
        en="Some of the past is hidden as well: all weights on and below the diagonal should be"
        " above 0.",
    )

# %% [md zh] why-mask
# ## 不遮会怎样
#
# 为什么非要掩码？因为训练时一次前向要同时预测**每个**位置的下一个词元，而那些“下一个”就在输入里。
# 不遮，模型只要抄后面一格。我们让它抄一次看看（约 5 秒）：

# %% [md en] why-mask
# ## What happens without it
#
# Why is the mask a must? In training, one pass predicts the next token at **every** place, and those
# next tokens are in the input. Unhidden, the model need only copy from one place to the right. Let
# it (about 5 seconds):

# %% [code] cheat
from torch.nn.functional import cross_entropy

letters = sorted(set(text))
row = torch.tensor([letters.index(c) for c in text])
shape = pw.ModelConfig(
    vocab_size=len(letters), context_length=16, n_layers=2, d_model=48, n_heads=4
)
ends = {}
for causal in (True, False):
    torch.manual_seed(1)
    net, draws = pw.GPT(replace(shape, causal=causal)), np.random.default_rng(1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    for _ in range(200):
        at = torch.tensor(draws.integers(0, len(row) - 17, 16))[
            :, None
        ] + torch.arange(17)
        loss = cross_entropy(
            net(row[at[:, :-1]]).flatten(0, 1), row[at[:, 1:]].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ends[causal] = loss.item()
    written = row[:16].tolist()
    with torch.no_grad():
        for _ in range(60):
            written.append(int(net(torch.tensor([written[-16:]]))[0, -1].argmax()))
    print(f"causal={causal}: loss {ends[causal]:.2f}")
    print(repr("".join(letters[i] for i in written[16:])))

# %% [check] cheat
expect(
    ends[False] < max(ends[True] - 0.5, 0.4),
    zh="没有掩码的模型应当靠抄袭得到低得多的损失；若没有，请恢复原来的步数。",
    en="The model without the mask should reach a far lower loss by copying; if not, restore the"
    " number of steps.",
)

# %% [md zh] cheat-read
# 没有掩码的损失漂亮得多，写出来的却不成样子：生成时右边没有东西可抄。
# **损失好得不像话时，先查泄漏。**
#
# ## 编码器、解码器、交叉注意力
#
# 那么什么时候可以不要掩码？当全文**本来就都知道**的时候。翻译正是这样：
#
# - **原文**一开始就全在手里，每个词都可以看前后的所有词。读它的那叠块不要掩码，这就是**编码器**。
# - **译文**要一个一个写，写的人看不见还没写的。这叠块要掩码，是**解码器**。
# - 解码器怎样读原文？多一个子层：**交叉注意力**。查询来自译文，键和值来自编码器的输出。

# %% [md en] cheat-read
# Without the mask the loss is far prettier and the writing is worthless: when it generates, there is
# nothing on the right to copy. **When a loss is too good, look for a leak first.**
#
# ## Encoder, decoder, cross-attention
#
# When can one do without the mask? When the whole text is **known anyway**. Translation is such a
# case:
#
# - The **source** is there from the start, and each word may look at all others. The stack that
#   reads it has no mask: that is the **encoder**.
# - The **target** is written word by word, and whoever writes does not see what is unwritten. That
#   stack has the mask: the **decoder**.
# - How does the decoder read the source? By one more sublayer, **cross-attention**: the queries come
#   from the target, keys and values from the encoder's output.

# %% [formula] cross
# latex = 'Y = \mathrm{softmax}(\frac{(X W_Q) (H W_K)^\top}{\sqrt{d_k}}) H W_V'
# code = "cross"
# names = {Y = "Y", X = "X", H = "H", W_Q = "W_Q", W_K = "W_K", W_V = "W_V", d_k = "d_k"}
# caption.zh = "交叉注意力：X 是译文的残差流，H 是编码器的输出；没有掩码，因为原文全知道"
# caption.en = "Cross-attention: X is the target's stream, H the encoder's output; no mask, as the source is all known"

# %% [code] cross
S, T, d, d_k = 7, 4, 16, 8
X, H = rng.normal(size=(T, d)), rng.normal(size=(S, d))
W_Q, W_K, W_V = (rng.normal(size=(d, d_k)) / np.sqrt(d) for _ in range(3))
scores = (X @ W_Q) @ (H @ W_K).T / np.sqrt(d_k)
looks = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
Y = looks @ (H @ W_V)
print("table", looks.shape, "->", Y.shape)

# %% [md zh] pairs
# ## 真的翻译一次
#
# 打分表不再是方的：$T$ 行 $S$ 列，两边长短可以不同。
#
# 来真的翻译一次：把罗马数字翻成阿拉伯数字。它虽小，却有翻译的难处：
# 长度不同（`DCCCLXXXVIII` → `888`），几个字母合成一个数字，有的数字原文里根本没有（`CV` → `105` 的 0）。
#
# 还要两个专用的词元。**START**：译文还一个字都没有时，解码器也得读点什么。
# **END**：模型自己说“写完了”，不然谁知道该停在哪里。

# %% [md en] pairs
# ## Translating for real
#
# The table of scores is no longer square: $T$ rows and $S$ columns, and the sides may differ.
#
# Now translate for real: Roman numerals into Arabic ones. Small as it is, it has what makes
# translating hard: lengths differ (`DCCCLXXXVIII` to `888`), several letters make one digit, and
# some digits have no letter at all (the 0 in `CV` to `105`).
#
# Two extra tokens are needed. **START**: with nothing written yet, the decoder must still read something.
# **END**: the model says that it has finished; who else would know where to stop?


# %% [code] roman
def roman(n):
    out = ""
    for value, sign in zip(
        (900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    ):
        out, n = out + sign * (n // value), n % value
    return out


signs = "0123456789CDILMVX"
PAD, START, END = len(signs), len(signs) + 1, len(signs) + 2
codes = {sign: i for i, sign in enumerate(signs)}


def padded(row, length, fill):
    return row + [fill] * (length - len(row))


numbers = np.random.default_rng(0).permutation(np.arange(1, 1000))
spelled = [[codes[c] for c in roman(n)] for n in numbers]
digits = [[codes[c] for c in str(n)] for n in numbers]
source = torch.tensor([padded([*row, END], 13, PAD) for row in spelled])
reads = torch.tensor([padded([START, *row], 4, PAD) for row in digits])
says = torch.tensor([padded([*row, END], 4, -100) for row in digits])
names = [*signs, "PAD", "START", "END"]
for title, row in (
    ("encoder reads", source),
    ("decoder reads", reads),
    ("must say", says),
):
    print(
        f"{title:14}", *(names[i] for i in row[0].tolist() if i not in (PAD, -100))
    )

# %% [md zh] train-it
# 解码器读的和要说的又是错开一位，与 GPT 一模一样。900 对用来训练，99 对它从没见过（约需 5 至 10 秒）：

# %% [md en] train-it
# What the decoder reads and what it must say are one place apart, just as in GPT. It learns from 900
# pairs; 99 it never sees (5 to 10 seconds):

# %% [code] translator
torch.manual_seed(1)
translator = pw.Seq2Seq(
    pw.Seq2SeqConfig(
        vocab_size=len(signs) + 3,
        context_length=13,
        n_encoder_layers=1,
        n_decoder_layers=1,
        d_model=64,
        n_heads=4,
        norm_placement="pre",
        dropout=0.0,
        embedding_dropout=0.0,
    )
)
optimizer, draws = (
    torch.optim.AdamW(translator.parameters()),
    np.random.default_rng(1),
)
for step in range(350):
    for group in optimizer.param_groups:
        group["lr"] = 6e-3 * min(1, (step + 1) / 20) * (1 - step / 350)
    at = torch.tensor(draws.integers(0, 900, 64))
    logits = translator(source[at], reads[at])
    loss = cross_entropy(
        logits.flatten(0, 1), says[at].flatten(), ignore_index=-100
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(step + 1, f"{loss.item():.3f}")

# %% [md zh] greedy
# **练习**：写 `translate`。从 START 开始，每次取最可能的那个词元接上，遇到 END 停止。
# 下面的写法总是写满三个，于是 `VII` 成了三位数。

# %% [md en] greedy
# **Exercise**: write `translate`. Begin with START, append the likeliest token each time, stop at END.
# As it stands it always writes three, which makes `VII` a number of three digits.


# %% [code] translate
@torch.no_grad()
def translate(numeral):
    row = torch.tensor([[*(codes[c] for c in numeral), END]])
    written = [START]
    for _ in range(3):
        next_one = int(translator(row, torch.tensor([written]))[0, -1].argmax())
        written.append(next_one)
    return "".join(signs[i] if i < PAD else "?" for i in written[1:])


for numeral in ("VII", "XL", "CV", "DCCCLXXXVIII"):
    print(numeral, "->", translate(numeral))


# %% [solution] translate
@torch.no_grad()
def translate(numeral):
    row = torch.tensor([[*(codes[c] for c in numeral), END]])
    written = [START]
    for _ in range(4):
        next_one = int(translator(row, torch.tensor([written]))[0, -1].argmax())
        if next_one == END:
            break
        written.append(next_one)
    return "".join(signs[i] if i < PAD else "?" for i in written[1:])


for numeral in ("VII", "XL", "CV", "DCCCLXXXVIII"):
    print(numeral, "->", translate(numeral))

# %% [check] translate
right = [translate(roman(n)) == str(n) for n in numbers[900:].tolist()]
short = [translate(roman(n)) for n in range(1, 10)]
expect(
    all(len(said) <= 2 for said in short) and "?" not in "".join(short),
    zh="一位数被写长了：END 也是模型说的一个词元，一说它就要停，而且不写出来。",
    en="Numbers of one digit come out too long: END is a token that the model says; stop there and"
    " do not write it.",
)
expect(
    sum(right) >= 60,
    zh=f"没见过的 99 个里只对了 {sum(right)} 个。若每次都少最后一位，是循环太短：三位数之后还要说一次 END。",
    en=f"Only {sum(right)} of the 99 unseen ones are right. If a last digit is always missing, the"
    " loop is too short: after three digits comes END.",
)

# %% [md zh] looks
# ## 写的时候看哪里
#
# 它没背过这些数，却翻对了大半：学到的是规律。看它写每个数字时在看原文的哪里：

# %% [md en] looks
# ## Where it looks while writing
#
# It never saw these numbers and gets most of them right: what it learned is the rule. See where it
# looks in the source as it writes each digit:

# %% [code] looked
from partwise.model.alignment import alignment

right = [translate(roman(n)) == str(n) for n in numbers[900:].tolist()]
print(f"{sum(right)} of 99 unseen numerals translated exactly")
numeral = "DCCCLXXVI"
answer = translate(numeral)
row = torch.tensor([[*(codes[c] for c in numeral), END]])
begun = torch.tensor([[START, *(codes[c] for c in answer)]])
looked = alignment(translator, row, begun)[0].numpy()
show(
    looked,
    rows=[*answer, "END"],
    cols=[*numeral, "END"],
    title=f"{numeral} -> {answer}",
)
print(looked.shape, looked.sum(-1).round(3))

# %% [widget] alignment
# name = "Alignment"
# label.zh = "翻译时看哪里：选层和头，看交叉注意力"
# label.en = "Where it looks while translating: choose a layer and a head of cross-attention"

# %% [md zh] which
# ## 今天为什么大多只用解码器
#
# 把原文和译文接成一行，前面加掩码，一叠块也能翻译：
# 我们在 7640 对法英界面文字上各训练一个差不多大的模型（一个种子，`docs/translate.md`），
# 编码器加解码器得 32.9 BLEU，只用解码器得 31.8：差得不多，一个种子也不足以分高下。
#
# 只用解码器的好处是**一件事**：任何文字都能拿来预测下一个词元，不必分原文译文，每个位置都有损失可学。
# 哪种更好要看怎么用：Wang 等（2022）发现，只做自监督预训练时，因果解码器的零样本能力最好；
# 再经多任务微调，则是看得见全文的模型更好。BERT（Devlin 等，2019）只有编码器：它不写，只读。

# %% [md en] which
# ## Why most are decoder-only today
#
# With source and target in one row and the mask on, one
# stack can translate too. On 7,640 pairs of French and English interface texts we trained two
# models of about the same size (one seed, `docs/translate.md`): encoder and decoder 32.9 BLEU,
# decoder-only 31.8. That is close, and one seed cannot decide it.
#
# What decoder-only has going for it is that there is **one job**: any text will do to predict the
# next token, nothing need be split into source and target, and every place has a loss to learn
# from. Which is better depends on the use: Wang et al. (2022) found the causal decoder best at
# zero-shot tasks after plain self-supervised training, and models that see the whole input better
# after multitask fine-tuning. BERT (Devlin et al. 2019) is an encoder alone: it reads and does not
# write.

# %% [widget] figure
# name = "PaperFigure"
# label.zh = "论文里的图：爬到哪一级，勾掉哪些框"
# label.en = "The paper's figure: its boxes ticked off as rungs are climbed"

# %% [quiz] what-makes
# kind = "choice"
# question.zh = "把 GPT 的哪一样改掉，它就成了编码器？"
# question.en = "Which single change turns a GPT's stack into an encoder?"
# [[options]]
# zh = "去掉因果掩码"
# en = "Take the causal mask away"
# right = true
# feedback.zh = "对。块、权重的形状、残差和归一化都不用动。"
# feedback.en = "Yes. Blocks, shapes, residuals and norms stay."
# [[options]]
# zh = "去掉位置嵌入"
# en = "Take the position embeddings away"
# right = false
# feedback.zh = "编码器也要知道次序。"
# feedback.en = "An encoder needs to know the order too."
# [[options]]
# zh = "加上交叉注意力"
# en = "Add cross-attention"
# right = false
# feedback.zh = "那是解码器读编码器用的；编码器自己没有。"
# feedback.en = "That is how a decoder reads an encoder; the encoder itself has none."
# [[options]]
# zh = "把前馈层加宽"
# en = "Widen the feed-forward layer"
# right = false
# feedback.zh = "宽度与能否看见未来无关。"
# feedback.en = "Width has nothing to do with seeing the future."

# %% [quiz] table
# kind = "number"
# question.zh = "原文 9 个词元（含 END），译文读入 4 个（含 START）。交叉注意力一个头的打分表有多少格？"
# question.en = "The source has 9 tokens (with END), the decoder reads 4 (with START). How many cells has one head's table in cross-attention?"
# answer = 36
# expression = "4 * 9"
# feedback.right.zh = "对，4 行 9 列：每个译文位置给每个原文词元打一个分，不用遮。"
# feedback.right.en = "Yes, 4 rows of 9: each place of the target scores each token of the source, and none is hidden."
# feedback.wrong.zh = "行是提问的（译文），列是回答的（原文）。"
# feedback.wrong.en = "Rows ask (the target), columns answer (the source)."

# %% [quiz] from-where
# kind = "many"
# question.zh = "关于交叉注意力，哪些对？"
# question.en = "What is true of cross-attention?"
# [[options]]
# zh = "查询来自解码器的残差流"
# en = "Queries come from the decoder's stream"
# right = true
# feedback.zh = "对：正在写的人提问。"
# feedback.en = "Yes: whoever is writing asks."
# [[options]]
# zh = "键和值来自编码器的输出"
# en = "Keys and values come from the encoder's output"
# right = true
# feedback.zh = "对，所以整篇译文只需算一次。"
# feedback.en = "Yes, so they are computed once for the whole target."
# [[options]]
# zh = "需要因果掩码"
# en = "It needs the causal mask"
# right = false
# feedback.zh = "不需要：原文全知道。要遮的只有填充（PAD）。"
# feedback.en = "No: the source is all known. Only padding (PAD) is hidden."
# [[options]]
# zh = "GPT 的每个块里也有"
# en = "Every block of a GPT has it too"
# right = false
# feedback.zh = "没有：GPT 没有编码器可读。"
# feedback.en = "No: a GPT has no encoder to read."

# %% [quiz] steps
# kind = "order"
# question.zh = "排好一次翻译。"
# question.en = "Put one translation in order."
# [[items]]
# zh = "编码器读完全部原文和 END"
# en = "The encoder reads the whole source and END"
# feedback.zh = "只做一次。"
# feedback.en = "Done once."
# [[items]]
# zh = "解码器读 START"
# en = "The decoder reads START"
# feedback.zh = "还没有译文，总得读点什么。"
# feedback.en = "Nothing is written yet, and it must read something."
# [[items]]
# zh = "经交叉注意力，给出第一个词元，接在后面再读"
# en = "By cross-attention it gives the first token, which is appended and read"
# feedback.zh = "与 GPT 生成一样，一次一个。"
# feedback.en = "As a GPT generates: one at a time."
# [[items]]
# zh = "给出 END，停止"
# en = "It gives END and stops"
# feedback.zh = "长度由模型决定。"
# feedback.en = "The model decides the length."

# %% [reading]
# [[items]]
# title = "Attention Is All You Need"
# where = "Vaswani et al. 2017, figure 1 and section 3.2.3"
# look.zh = "图 1 里有三种注意力，指出各自的查询、键、值从哪里来，哪一种有掩码。"
# look.en = "Figure 1 has three kinds of attention: say for each where queries, keys and values come from, and which is masked."
# [[items]]
# title = "Neural Machine Translation by Jointly Learning to Align and Translate"
# where = "Bahdanau, Cho and Bengio 2015, figure 3"
# look.zh = "比 Transformer 更早的对齐图，和你刚画的比一比。"
# look.en = "Alignment pictures from before the Transformer; compare them with yours."
# [[items]]
# title = "What Language Model Architecture and Pretraining Objective Work Best for Zero-Shot Generalization?"
# where = "Wang et al. 2022"
# look.zh = "三种架构、两种目标的对照；留意结论怎样随有无微调而反转。"
# look.en = "Three architectures and two objectives side by side; note how the verdict turns with fine-tuning."
