//! The answers of one connection that are sent at an instant of their own, in order.

use std::collections::VecDeque;

use super::faults::Trickle;

/// Answers that wait; more requests of the peer are not read. A pipeline of 1000 with a delay is no reason to stop.
const ANSWERS_MAX: usize = 4096;
/// The most bytes of waiting answers.
const BYTES_MAX: usize = 1 << 20;

/// Answers that wait, the first to leave first.
#[derive(Debug, Default)]
pub(super) struct AnswerQueue {
    answers: VecDeque<Timed>,
    bytes: usize,
    /// Before that the next answer may not begin, because the pieces of the last keep their pace.
    free_ns: u64,
    /// The instant for which there is a timer.
    pub(super) armed_ns: Option<u64>,
}

#[derive(Debug)]
struct Timed {
    due_ns: u64,
    bytes: Vec<u8>,
    sent: usize,
}

impl AnswerQueue {
    /// Puts an answer at the end.
    pub(super) fn push(&mut self, due_ns: u64, bytes: Vec<u8>) {
        self.bytes += bytes.len();
        let due_ns = if self.answers.is_empty() { due_ns.max(self.free_ns) } else { due_ns };
        self.answers.push_back(Timed { due_ns, bytes, sent: 0 });
    }

    /// The instant of the next answer or piece.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.answers.front().map(|answer| answer.due_ns)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Whether no more requests are to be read for now.
    pub(super) fn is_full(&self) -> bool {
        self.answers.len() >= ANSWERS_MAX || self.bytes >= BYTES_MAX
    }

    /// Appends the answers and pieces that are due to the output.
    pub(super) fn release(&mut self, now_ns: u64, trickle: Option<Trickle>, output: &mut Vec<u8>) {
        while let Some(answer) = self.answers.front_mut().filter(|answer| answer.due_ns <= now_ns) {
            let rest = &answer.bytes[answer.sent..];
            let piece = trickle.map_or(rest.len(), |trickle| rest.len().min(trickle.bytes.get() as usize));
            output.extend_from_slice(&rest[..piece]);
            answer.sent += piece;
            answer.due_ns += trickle.map_or(0, |trickle| trickle.every.as_nanos() as u64);
            if answer.sent < answer.bytes.len() {
                continue;
            }
            self.free_ns = answer.due_ns;
            self.bytes -= answer.bytes.len();
            self.answers.pop_front();
            if let Some(next) = self.answers.front_mut() {
                next.due_ns = next.due_ns.max(self.free_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    fn line(answers: &[(u64, &str)]) -> AnswerQueue {
        let mut line = AnswerQueue::default();
        for (due_ns, text) in answers {
            line.push(*due_ns, text.as_bytes().to_vec());
        }
        line
    }

    /// What leaves when, if every instant that the line asks for is kept.
    fn kept(mut line: AnswerQueue, trickle: Option<Trickle>) -> Vec<(u64, String)> {
        let mut left = Vec::new();
        while let Some(now_ns) = line.next_ns() {
            let mut output = Vec::new();
            line.release(now_ns, trickle, &mut output);
            left.push((now_ns, String::from_utf8(output).unwrap()));
        }
        left
    }

    fn by_two(every_ns: u64) -> Option<Trickle> {
        Some(Trickle { bytes: NonZeroU32::new(2).unwrap(), every: Duration::from_nanos(every_ns) })
    }

    #[track_caller]
    fn check(line: AnswerQueue, trickle: Option<Trickle>, expected: &[(u64, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(at_ns, text)| (*at_ns, (*text).to_owned())).collect();
        assert_eq!(kept(line, trickle), expected);
    }

    #[test]
    fn answers_wait_for_those_before_them_and_no_longer() {
        check(line(&[(10, "a"), (30, "b")]), None, &[(10, "a"), (30, "b")]);
        check(line(&[(30, "a"), (10, "b"), (30, "c"), (31, "d")]), None, &[(30, "abc"), (31, "d")]);
    }

    #[test]
    fn pieces_keep_their_pace() {
        let pieces = [(10, "ab"), (15, "cd"), (20, "e"), (25, "fg"), (40, "h")];
        check(line(&[(10, "abcde"), (11, "fg"), (40, "h")]), by_two(5), &pieces);
        // Late by two pieces: they leave at once, and the third at its own instant.
        let mut late = line(&[(10, "abcdef")]);
        let mut output = Vec::new();
        late.release(17, by_two(5), &mut output);
        assert_eq!((output.as_slice(), late.next_ns()), (b"abcd".as_slice(), Some(20)));
        late.release(20, by_two(5), &mut output);
        // Later answers keep the pace, too.
        late.push(21, b"g".to_vec());
        assert_eq!(late.next_ns(), Some(25));
    }

    #[test]
    fn a_line_has_an_end() {
        let mut many = AnswerQueue::default();
        let pushed = (0..).take_while(|_| (!many.is_full()).then(|| many.push(1, vec![0])).is_some()).count();
        assert_eq!(pushed, ANSWERS_MAX);
        many.release(1, None, &mut Vec::new());
        assert!(!many.is_full() && many.is_empty());
        let mut large = line(&[(1, &"x".repeat(BYTES_MAX))]);
        assert!(large.is_full());
        large.release(1, None, &mut Vec::new());
        assert!(!large.is_full());
    }
}
