/** The labs, in the order of the course. */
import type { Pair } from "../lib/i18n";

export interface Lab {
  name: string;
  widget: string;
  lesson: string;
  title: Pair;
  question: Pair;
  /** Whether it works on the model that the reader picked. */
  model: boolean;
}

export const LABS: readonly Lab[] = [
  {
    name: "knock-out",
    widget: "Knockout",
    lesson: "06.12",
    title: { zh: "拆零件", en: "Remove now" },
    question: {
      zh: "从训练好的模型里拿掉一个零件，损失涨多少？",
      en: "Take one part out of a trained model: how much does the loss rise?",
    },
    model: true,
  },
  {
    name: "deep-stack",
    widget: "DeepStack",
    lesson: "06.5",
    title: { zh: "很深的模型", en: "The deep stack" },
    question: {
      zh: "训练之前，梯度能传回第一层吗？词元还分得清吗？",
      en: "Before any training: does the gradient reach the first layer, and are tokens still apart?",
    },
    model: false,
  },
  {
    name: "race",
    widget: "Race",
    lesson: "06.7",
    title: { zh: "pre-norm 与 post-norm 赛跑", en: "Pre-norm races post-norm" },
    question: {
      zh: "只有 LayerNorm 的位置不同，谁学得快？",
      en: "Only the place of LayerNorm differs: who learns faster?",
    },
    model: false,
  },
  {
    name: "norms",
    widget: "Norms",
    lesson: "06.6",
    title: { zh: "三种归一化", en: "Three norms" },
    question: {
      zh: "同一个矩阵，按行还是按列？批变大时谁会动？",
      en: "One matrix, by rows or by columns: who moves when the batch grows?",
    },
    model: false,
  },
  {
    name: "dropout-edges",
    widget: "DropoutEdges",
    lesson: "06.10",
    title: { zh: "丢掉注意力的边", en: "Dropping edges" },
    question: {
      zh: "在注意力权重上丢弃，等于不让一些词元说话。",
      en: "Dropout on attention weights keeps some tokens from talking.",
    },
    model: true,
  },
  {
    name: "sub-networks",
    widget: "Subnetworks",
    lesson: "06.10",
    title: { zh: "子网络的平均", en: "The mean of sub-networks" },
    question: {
      zh: "丢弃训练出一群子网络；平均它们有多好？",
      en: "Dropout trains a crowd of sub-networks: how good is their mean?",
    },
    model: true,
  },
  {
    name: "alignment",
    widget: "Alignment",
    lesson: "06.11",
    title: { zh: "翻译时看哪里", en: "Where a translator looks" },
    question: {
      zh: "写每个词元时，交叉注意力看着原文的哪里？",
      en: "Which part of the source does cross-attention look at for each token?",
    },
    model: false,
  },
  {
    name: "paper-figure",
    widget: "PaperFigure",
    lesson: "06.11",
    title: { zh: "论文里的那张图", en: "The paper's figure" },
    question: {
      zh: "爬到第几级，图上的哪些方框就有了？",
      en: "Which of its boxes are there once a rung is climbed?",
    },
    model: false,
  },
];
