//! Queueing disciplines: the one at the root of a link, and filters at its clsact qdisc.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE, Nla};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use serde::{Deserialize, Serialize};

use super::{Netlink, qdisc_message};
use crate::qdisc::Tbf;
use crate::{Qdisc, Result};

/// A queueing discipline that was set at the root of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QdiscInfo {
    /// The kernel's name of its kind.
    pub kind: String,
    /// Its number, `1:` in tc's notation; never 0, which marks those that the kernel chose.
    pub major: u16,
    /// Its options as the kernel reports them.
    pub options: Vec<u8>,
    /// Others stand below it, or filters that send packets to its queues.
    pub branched: bool,
    /// Kind and options of the inner discipline; only a tbf has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner: Option<(String, Vec<u8>)>,
}

/// What the kernel put at the root of a link by itself. It has the options that its kinds have by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenQdisc {
    /// The kind; `mq` at a link with several send queues.
    pub kind: String,
    /// The kinds below `mq`, one for each send queue that is in use. They may differ: a queue that came into use after
    /// the link was set up has `pfifo_fast` (`mq_init` in net/sched/sch_mq.c).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
}

/// What stands at the root of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootQdisc {
    /// It was set.
    Set(QdiscInfo),
    /// The kernel chose it; `None`: it has yet to choose, when the link is set up.
    Chosen(Option<ChosenQdisc>),
}

/// Kinds whose options the kernel accepts in the form in which it reports them.
const REPEATABLE: [&str; 7] = ["bfifo", "fq", "fq_codel", "netem", "noqueue", "pfifo", "pfifo_fast"];
/// The attribute with a queueing discipline's options.
const TCA_OPTIONS: u16 = 2;

impl QdiscInfo {
    /// The discipline; `None` for a kind or an option that the project never sets.
    pub fn qdisc(&self) -> Option<Qdisc> {
        if self.kind != "tbf" {
            return qdisc_message::read(&self.kind, &self.options);
        }
        let (kind, options) = self.inner.as_ref()?;
        let inner = qdisc_message::read(kind, options)?;
        let (rate_bytes_per_s, burst_bytes) = qdisc_message::read_tbf(&self.options)?;
        Some(Qdisc::Tbf(Box::new(Tbf { rate_bytes_per_s, burst_bytes, inner })))
    }

    /// Why it could not be put back once it is gone; `None` if it could.
    pub fn irretrievable(&self) -> Option<&'static str> {
        if self.branched {
            return Some("others or filters stand below it");
        }
        if !REPEATABLE.contains(&self.kind.as_str()) {
            return Some("the kernel does not report its options as they are set");
        }
        let spread = self.kind == "netem" && qdisc_message::is_spread(&self.options);
        spread.then_some("the kernel does not report the distribution of its jitter")
    }
}

impl ChosenQdisc {
    /// True if the queues that both have got the same kinds.
    pub fn is_same(&self, other: &ChosenQdisc) -> bool {
        self.kind == other.kind && self.queues.iter().zip(&other.queues).all(|(one, other)| one == other)
    }

    fn of(qdiscs: &[TcMessage], root: &TcMessage) -> ChosenQdisc {
        let mut queues: Vec<(u16, String)> = qdiscs
            .iter()
            .filter(|qdisc| qdisc.header.parent.major == 0)
            .map(|qdisc| (qdisc.header.parent.minor, kind_and_options(qdisc).0))
            .collect();
        queues.sort_unstable();
        let queues = queues.into_iter().map(|(_, kind)| kind).collect();
        ChosenQdisc { kind: kind_and_options(root).0, queues }
    }
}

/// What packets of a direction meet at a link's clsact qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterInfo {
    /// False: it is for packets that the link sends.
    pub ingress: bool,
    /// Its place in the order, 1 to 65535.
    pub priority: u16,
    /// Its number among the filters of its priority; 0 stands for the priority itself.
    pub handle: u32,
}

/// Where a clsact qdisc has its filters for either direction (`TC_H_CLSACT` with one of them).
const INGRESS: u16 = TcHandle::MIN_INGRESS;
const EGRESS: u16 = TcHandle::MIN_EGRESS;

impl Netlink {
    /// The filters of a link's clsact qdisc; empty if it has no such qdisc.
    pub fn filters(&self, index: u32) -> Result<Vec<FilterInfo>> {
        let mut filters = Vec::new();
        for minor in [INGRESS, EGRESS] {
            let found = self.filters_at(index, TcHandle { major: u16::MAX, minor })?;
            filters.extend(found.iter().map(|filter| {
                let priority = u16::try_from(filter.header.info >> 16).expect("sixteen bits are left");
                let handle = filter.header.handle.into();
                FilterInfo { ingress: minor == INGRESS, priority, handle }
            }));
        }
        Ok(filters)
    }

    pub(super) fn filters_at(&self, index: u32, parent: TcHandle) -> Result<Vec<TcMessage>> {
        let mut question = TcMessage::with_index(index.cast_signed());
        question.header.parent = parent;
        let answers = self.dump(&Message::GetTrafficFilter(question), "list filters")?;
        let filters = answers.into_iter().filter_map(|answer| match answer {
            Message::NewTrafficFilter(filter) => Some(filter),
            _ => None,
        });
        Ok(filters.filter(|filter| filter.header.index == index.cast_signed()).collect())
    }

    /// The discipline that was set at the root of a link; `None` if the kernel's own choice is there.
    pub fn root_qdisc(&self, index: u32) -> Result<Option<QdiscInfo>> {
        Ok(match self.root_of(index)? {
            RootQdisc::Set(info) => Some(info),
            RootQdisc::Chosen(_) => None,
        })
    }

    /// The discipline at the root of a link, whoever put it there.
    pub fn root_of(&self, index: u32) -> Result<RootQdisc> {
        let qdiscs = self.qdiscs(index)?;
        let root = qdiscs.iter().find(|qdisc| qdisc.header.parent == TcHandle::ROOT);
        let Some(root) = root else { return Ok(RootQdisc::Chosen(None)) };
        let major = root.header.handle.major;
        if major == 0 {
            return Ok(RootQdisc::Chosen(Some(ChosenQdisc::of(&qdiscs, root))));
        }
        let below = qdiscs.iter().find(|qdisc| qdisc.header.parent.major == major);
        let (kind, options) = kind_and_options(root);
        let inner = below.filter(|_| kind == "tbf").map(kind_and_options);
        let mut info = QdiscInfo { kind, major, options, branched: below.is_some(), inner };
        // The other restorable kinds have no filters.
        if info.kind == "fq_codel" {
            info.branched |= !self.filters_at(index, root.header.handle)?.is_empty();
        }
        Ok(RootQdisc::Set(info))
    }

    /// Puts a queueing discipline at the root of a link and replaces the old one. The new one starts without the old
    /// one's packets and options, even if both are of one kind. `ENOENT` if this kernel lacks the kind.
    pub fn set_root_qdisc(&self, index: u32, qdisc: &Qdisc) -> Result<()> {
        let attempted = format!("put {qdisc} at the root of link {index}");
        let mut taken = self.taken(index)?;
        let major = free(&mut taken);
        self.place_qdisc(
            index,
            TcHandle::ROOT,
            major,
            (qdisc.kind(), qdisc_message::options(qdisc)),
            attempted,
        )?;
        let Qdisc::Tbf(tbf) = qdisc else { return Ok(()) };
        let attempted = format!("put {} inside the tbf of link {index}", tbf.inner);
        let (inner, below) = (&tbf.inner, TcHandle { major, minor: 1 });
        let inner_major = free(&mut taken);
        self.place_qdisc(index, below, inner_major, (inner.kind(), qdisc_message::options(inner)), attempted)
    }

    /// Puts back what [`Netlink::root_qdisc`] has returned, with its number.
    pub fn restore_root_qdisc(&self, index: u32, old: &QdiscInfo) -> Result<()> {
        let attempted = format!("put {} {:x}: back at the root of link {index}", old.kind, old.major);
        let options = qdisc_message::repeated(&old.kind, &old.options);
        self.place_qdisc(index, TcHandle::ROOT, old.major, (&old.kind, Some(options)), attempted)
    }

    /// Removes the discipline that was set at the root of a link, so that the kernel's default returns: `noqueue` for
    /// links without a queue, otherwise `net.core.default_qdisc`, one for each send queue. `ENOENT` if none was set.
    pub fn delete_root_qdisc(&self, index: u32) -> Result<()> {
        let attempted = format!("remove the queueing discipline at the root of link {index}");
        self.change(Message::DelQueueDiscipline(at_root(index)), 0, attempted)
    }

    /// Removes the discipline that was set at the root of a link, so that what the kernel had chosen returns. If
    /// its choice is another now, since `net.core.default_qdisc` has changed, those kinds are set: they queue
    /// alike, and have a number.
    pub fn restore_chosen_qdisc(&self, index: u32, chosen: &ChosenQdisc) -> Result<()> {
        self.delete_root_qdisc(index)?;
        match self.root_of(index)? {
            RootQdisc::Chosen(Some(now)) if !now.is_same(chosen) => {}
            // A link that is down has none before it is set up.
            RootQdisc::Chosen(_) | RootQdisc::Set(_) => return Ok(()),
        }
        let attempted = || format!("put {} back at the root of link {index}", chosen.kind);
        let mut taken = self.taken(index)?;
        let major = free(&mut taken);
        self.place_qdisc(index, TcHandle::ROOT, major, (&chosen.kind, None), attempted())?;
        let mut now = self.qdiscs(index)?;
        now.retain(|qdisc| qdisc.header.parent.major == major);
        for (minor, kind) in (1..).zip(&chosen.queues) {
            let below = now.iter().find(|qdisc| qdisc.header.parent.minor == minor);
            if let Some(below) = below.filter(|below| kind_and_options(below).0 != *kind) {
                self.place_qdisc(index, below.header.parent, free(&mut taken), (kind, None), attempted())?;
            }
        }
        Ok(())
    }

    /// With a number that no other of the link has it is made again. Without one the kernel would change an old one of
    /// the same kind, which keeps the options that are not named (`tc_modify_qdisc` in net/sched/sch_api.c).
    fn place_qdisc(
        &self,
        index: u32,
        parent: TcHandle,
        major: u16,
        (kind, options): (&str, Option<Vec<u8>>),
        attempted: String,
    ) -> Result<()> {
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = parent;
        message.header.handle = TcHandle { major, minor: 0 };
        message.attributes.push(TcAttribute::Kind(kind.to_owned()));
        let options = options.filter(|options| !options.is_empty());
        let options = options.map(|options| TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, options)));
        message.attributes.extend(options);
        self.change(Message::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE, attempted)
    }

    /// The numbers of a link's disciplines.
    fn taken(&self, index: u32) -> Result<Vec<u16>> {
        Ok(self.qdiscs(index)?.iter().map(|qdisc| qdisc.header.handle.major).collect())
    }

    /// Every queueing discipline of a link.
    fn qdiscs(&self, index: u32) -> Result<Vec<TcMessage>> {
        let question = TcMessage::with_index(index.cast_signed());
        let answers = self.dump(&Message::GetQueueDiscipline(question), "list queueing disciplines")?;
        let of_link = answers.into_iter().filter_map(|answer| match answer {
            Message::NewQueueDiscipline(qdisc) => Some(qdisc),
            _ => None,
        });
        // The kernel reports those of all links.
        Ok(of_link.filter(|qdisc| qdisc.header.index == index.cast_signed()).collect())
    }
}

/// A number that is not taken; it is from then on.
fn free(taken: &mut Vec<u16>) -> u16 {
    let free = (1..).find(|major| !taken.contains(major)).expect("a link has few of them");
    taken.push(free);
    free
}

fn kind_and_options(message: &TcMessage) -> (String, Vec<u8>) {
    let mut found = (String::new(), Vec::new());
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(kind) => found.0.clone_from(kind),
            TcAttribute::Options(options) => found.1 = raw(options),
            _ => {}
        }
    }
    found
}

fn at_root(index: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle::ROOT;
    message
}

/// Options as they came: the library takes those of some kinds apart and holds the others as one attribute.
fn raw(options: &[TcOption]) -> Vec<u8> {
    match options {
        [TcOption::Other(whole)] => {
            let mut bytes = vec![0; Nla::value_len(whole)];
            whole.emit_value(&mut bytes);
            bytes
        }
        parts => qdisc_message::bytes(parts),
    }
}
