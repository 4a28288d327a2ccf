//! Many echo requests at the same time, at a bounded rate: first a small one to each, then one that fills the way.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linux::icmp::{EchoRefusal, EchoSocket, IcmpMessage, IcmpReason};

/// Between two requests: 2,000 a second at most, which are 24 Mbit/s if all of them have 1,500 bytes.
const GAP: Duration = Duration::from_micros(500);
/// Requests that are due are sent together if the machine was busy so long, and no more of them.
const BURST: Duration = Duration::from_millis(10);
/// So many messages are read before the next request may be sent.
const HEARD_AT_ONCE: usize = 256;
/// How long the answers to the first, the second and the third request of a size may take.
const PATIENCE: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(600), Duration::from_millis(1200)];
/// An answer that is an error message may be held back. Linux has a budget of them for each destination, which grows by
/// one a second and holds six (`icmp_ratelimit`), or five for what it has no route for (`ip_error`). Those take two:
/// one of which is lost where only one is left. So there is one try after more than two seconds.
const PATIENCE_FOR_ERRORS: [Duration; 3] =
    [Duration::from_millis(400), Duration::from_millis(2200), Duration::from_millis(1200)];
/// Bytes of the IP packets with which `ping` asks.
const SMALL_V4: u32 = 84;
const SMALL_V6: u32 = 104;

/// A destination, and the sizes of the packets that it is to answer.
#[derive(Debug, Clone)]
pub(super) struct Question {
    /// The number of the socket.
    pub(super) socket: usize,
    /// The address that is to answer.
    pub(super) to: IpAddr,
    /// The bytes of the packet that fills the way; `None`: a small one will do.
    pub(super) full_bytes: Option<u32>,
    /// Prefixes whose error messages are answers too: a host that says that a packet cannot go on has received it.
    pub(super) witnesses: Vec<IpNet>,
}

/// What came of a question.
#[derive(Debug)]
pub(super) struct EchoResult {
    /// What came of the packet of as many bytes as `ping` sends.
    pub(super) small: Outcome,
    /// Of a full one; `None`: small ones do not pass, or it was not asked for.
    pub(super) full: Option<Outcome>,
}

impl EchoResult {
    /// Whether nothing came back of a packet that was sent.
    fn lacks_an_answer(&self) -> bool {
        [Some(&self.small), self.full.as_ref()].into_iter().flatten().any(|of| matches!(of, Outcome::Silent))
    }
}

/// What came of a request and its repetitions.
#[derive(Debug)]
pub(super) enum Outcome {
    Answered {
        /// From the sending of the request that was answered, not of the first.
        rtt: Duration,
    },
    /// An error message, and no answer.
    Refused(EchoRefusal),
    /// This machine could not send it.
    Unsent(linux::Error),
    /// Neither an answer nor an error message came after all repetitions.
    Silent,
}

impl Outcome {
    pub(super) fn is_answered(&self) -> bool {
        matches!(self, Outcome::Answered { .. })
    }
}

/// Asks all questions, and returns what came of each in their order.
///
/// # Errors
/// A socket cannot be read.
pub(super) fn ask(sockets: &[EchoSocket], questions: &[Question]) -> linux::Result<Vec<EchoResult>> {
    let polled: Vec<&EchoSocket> = sockets.iter().collect();
    let mut asking = Asking::new(questions);
    while let Some(until) = asking.next_event() {
        asking.send_due(sockets);
        EchoSocket::await_any(&polled, until)?;
        for socket in sockets {
            asking.hear_all(socket)?;
        }
        asking.give_up_on_late();
    }
    Ok(asking.states.into_iter().map(|state| EchoResult { small: state.small, full: state.full }).collect())
}

/// How often a question is asked, at most, on a machine that loses packets itself.
const ROUNDS: usize = 4;

/// Asks all questions, and those again that found no answer while this machine lost packets: its CPUs drop any packet
/// for which they have no time, so silence says nothing about the way. `lost` counts what they have dropped so far;
/// `None`: that is not known.
///
/// # Errors
/// As of `ask`.
pub(super) fn ask_until_sure(
    questions: &[Question],
    mut ask: impl FnMut(&[Question]) -> linux::Result<Vec<EchoResult>>,
    mut lost: impl FnMut() -> Option<u64>,
) -> linux::Result<Vec<EchoResult>> {
    let mut before = lost();
    let mut results = ask(questions)?;
    for _ in 1..ROUNDS {
        let silent: Vec<usize> = results
            .iter()
            .enumerate()
            .filter(|(_, result)| result.lacks_an_answer())
            .map(|at| at.0)
            .collect();
        let now = lost();
        if silent.is_empty() || now == before {
            break;
        }
        before = now;
        let again: Vec<Question> = silent.iter().map(|index| questions[*index].clone()).collect();
        for (index, again) in silent.into_iter().zip(ask(&again)?) {
            let known = &mut results[index];
            if again.small.is_answered() || !known.small.is_answered() {
                *known = again;
            }
        }
    }
    Ok(results)
}

/// Which packet of a question is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Small,
    Full,
    Over,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Requests of the present size.
    attempts: usize,
    refusal: Option<EchoRefusal>,
    /// Why the last request was not sent, if a later one may be.
    unsent: Option<linux::Error>,
    small: Outcome,
    full: Option<Outcome>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    question: usize,
    stage: Stage,
    attempt: usize,
    at: Instant,
}

struct Asking<'a> {
    questions: &'a [Question],
    states: Vec<State>,
    /// The questions whose next request is to be sent.
    due: VecDeque<usize>,
    next_send: Instant,
    /// Requests that wait for an answer, by their numbers.
    sent: HashMap<u32, Sent>,
    /// Until when their answers are waited for.
    deadlines: BTreeSet<(Instant, u32)>,
    /// The last number. Others ask, too, and their answers are heard here: each begins somewhere else.
    number: u32,
}

impl Asking<'_> {
    fn new(questions: &[Question]) -> Asking<'_> {
        let begin = || State {
            stage: Stage::Small,
            attempts: 0,
            refusal: None,
            unsent: None,
            small: Outcome::Silent,
            full: None,
        };
        Asking {
            questions,
            states: questions.iter().map(|_| begin()).collect(),
            due: (0..questions.len()).collect(),
            next_send: Instant::now(),
            sent: HashMap::new(),
            deadlines: BTreeSet::new(),
            number: RandomState::new().build_hasher().finish() as u32,
        }
    }

    /// When there is something to do without a message; `None`: all is known.
    fn next_event(&self) -> Option<Instant> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let send = (!self.due.is_empty()).then_some(self.next_send);
        deadline.into_iter().chain(send).min()
    }

    fn send_due(&mut self, sockets: &[EchoSocket]) {
        let now = Instant::now();
        if let Some(earliest) = now.checked_sub(BURST) {
            self.next_send = self.next_send.max(earliest);
        }
        while self.next_send <= now {
            let Some(index) = self.due.pop_front() else { return };
            self.next_send += GAP;
            self.send(sockets, index);
        }
    }

    fn send(&mut self, sockets: &[EchoSocket], index: usize) {
        let (question, state) = (&self.questions[index], &mut self.states[index]);
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        let sent = Sent { question: index, stage: state.stage, attempt: state.attempts, at: Instant::now() };
        let patience = patience(question)[state.attempts];
        state.attempts += 1;
        let (id, sequence) = ((number >> 16) as u16, number as u16);
        let asked = sockets[question.socket].try_ask(question.to, id, sequence, bytes(question, state.stage));
        state.unsent = match asked {
            // Packets to neighbours that are away fill the socket's buffer: this one counts as lost, and is repeated.
            Err(error) if EchoSocket::lacks_room(&error) => Some(error),
            Err(error) => return self.settle(index, Outcome::Unsent(error)),
            Ok(()) => None,
        };
        self.sent.insert(number, sent);
        self.deadlines.insert((sent.at + patience, number));
    }

    /// Hears what waits at a socket, or some of it: where more comes than can be read, requests are sent all the same.
    fn hear_all(&mut self, socket: &EchoSocket) -> linux::Result<()> {
        for _ in 0..HEARD_AT_ONCE {
            let Some(message) = socket.next_message()? else { break };
            self.hear(message);
        }
        Ok(())
    }

    fn hear(&mut self, message: IcmpMessage) {
        let (id, sequence) = match message {
            IcmpMessage::Reply(echo) => (echo.id, echo.sequence),
            IcmpMessage::Refusal(refusal) => (refusal.id, refusal.sequence),
        };
        let number = u32::from(id) << 16 | u32::from(sequence);
        let Some(sent) = self.sent.get(&number).copied() else { return };
        let (question, state) = (&self.questions[sent.question], &mut self.states[sent.question]);
        // The answer to an earlier request of the same size will do.
        if sent.stage != state.stage {
            return;
        }
        let is_answer = match message {
            IcmpMessage::Reply(echo) => echo.from == question.to,
            IcmpMessage::Refusal(refusal) => refusal.to == question.to && is_by_witness(question, &refusal),
        };
        match message {
            _ if is_answer => self.settle(sent.question, Outcome::Answered { rtt: sent.at.elapsed() }),
            IcmpMessage::Refusal(refusal) if refusal.to == question.to => state.refusal = Some(refusal),
            IcmpMessage::Refusal(_) | IcmpMessage::Reply(_) => {}
        }
    }

    fn give_up_on_late(&mut self) {
        let now = Instant::now();
        while let Some((at, number)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, number));
            let Some(sent) = self.sent.get(&number) else { continue };
            let (index, state) = (sent.question, &mut self.states[sent.question]);
            if sent.stage != state.stage || sent.attempt + 1 != state.attempts {
                continue;
            }
            if state.attempts < patience(&self.questions[index]).len() {
                self.due.push_back(index);
            } else {
                let outcome = match (state.refusal, state.unsent.take()) {
                    (Some(refusal), _) => Outcome::Refused(refusal),
                    (None, Some(error)) => Outcome::Unsent(error),
                    (None, None) => Outcome::Silent,
                };
                self.settle(index, outcome);
            }
        }
    }

    /// What came of the present size is known.
    fn settle(&mut self, index: usize, outcome: Outcome) {
        let state = &mut self.states[index];
        let is_answered = outcome.is_answered();
        match state.stage {
            Stage::Small => state.small = outcome,
            Stage::Full => state.full = Some(outcome),
            Stage::Over => return,
        }
        let is_wanted = self.questions[index].full_bytes.is_some();
        let goes_on = state.stage == Stage::Small && is_answered && is_wanted;
        state.stage = if goes_on { Stage::Full } else { Stage::Over };
        (state.attempts, state.refusal, state.unsent) = (0, None, None);
        self.due.retain(|due| *due != index);
        if goes_on {
            self.due.push_back(index);
        }
    }
}

fn bytes(question: &Question, stage: Stage) -> u32 {
    let small = if question.to.is_ipv6() { SMALL_V6 } else { SMALL_V4 };
    match (stage, question.full_bytes) {
        (Stage::Full, Some(full)) => full,
        (Stage::Small | Stage::Full | Stage::Over, full) => full.map_or(small, |full| full.min(small)),
    }
}

fn patience(question: &Question) -> &'static [Duration] {
    if question.witnesses.is_empty() { &PATIENCE } else { &PATIENCE_FOR_ERRORS }
}

/// Whether the error says that its sender has got the packet and would have sent it on.
fn is_by_witness(question: &Question, refusal: &EchoRefusal) -> bool {
    let has_it =
        matches!(refusal.reason, IcmpReason::HopLimit | IcmpReason::NoRoute | IcmpReason::HostUnreachable);
    has_it && question.witnesses.iter().any(|net| net.contains(&refusal.from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(small: bool, full: bool) -> EchoResult {
        let outcome = |is_answered| {
            if is_answered { Outcome::Answered { rtt: Duration::ZERO } } else { Outcome::Silent }
        };
        EchoResult { small: outcome(small), full: small.then(|| outcome(full)) }
    }

    /// What is known of two questions in the end, and how many were asked in each round, where the rounds come to
    /// `rounds` and the machine has lost so many packets before each look.
    fn sure(rounds: [[(bool, bool); 2]; ROUNDS], lost: &[u64]) -> (Vec<(bool, bool)>, Vec<usize>) {
        let question = |last| Question {
            socket: 0,
            to: [192, 0, 2, last].into(),
            full_bytes: Some(1500),
            witnesses: Vec::new(),
        };
        let (mut counts, mut lost) = (Vec::new(), lost.iter().copied());
        let ask = |questions: &[Question]| {
            let of_round = rounds[counts.len()];
            counts.push(questions.len());
            let number = |question: &Question| usize::from(question.to == IpAddr::from([192, 0, 2, 1]));
            Ok(questions
                .iter()
                .map(number)
                .map(|number| result(of_round[number].0, of_round[number].1))
                .collect())
        };
        let results = ask_until_sure(&[question(0), question(1)], ask, || lost.next()).unwrap();
        let is_answered =
            |of: &EchoResult| (of.small.is_answered(), of.full.as_ref().is_some_and(Outcome::is_answered));
        (results.iter().map(is_answered).collect(), counts)
    }

    #[test]
    fn silence_counts_where_this_machine_has_lost_nothing() {
        let (well, narrow, silent) = ((true, true), (true, false), (false, false));
        let first = |round| [round, [well; 2], [well; 2], [well; 2]];
        assert_eq!(sure(first([silent, well]), &[7, 7]), (vec![silent, well], vec![2]));
        assert_eq!(sure(first([silent, well]), &[7, 9, 9]), (vec![well, well], vec![2, 1]));
        assert_eq!(sure(first([narrow, well]), &[7, 9, 9]), (vec![well, well], vec![2, 1]));
        assert_eq!(
            sure(first([well, well]), &[7, 9]),
            (vec![well, well], vec![2]),
            "there is nothing to ask"
        );
        let always = [[silent, well], [silent; 2], [silent; 2], [silent; 2]];
        assert_eq!(sure(always, &[1, 2, 3, 4, 5]), (vec![silent, well], vec![2, 1, 1, 1]), "it ends");
        assert_eq!(sure(always, &[1, 2, 2]), (vec![silent, well], vec![2, 1]));
        let worse = [[narrow, well], [silent; 2], [silent; 2], [silent; 2]];
        assert_eq!(sure(worse, &[1, 2, 2]).0, [narrow, well], "what was answered once stays so");
    }
}
