//! The qdisc at a link's ingress: filters for what arrives, and the one that gives it to another link.
//!
//! Layouts and numbers: include/uapi/linux/pkt_cls.h.

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirror, TcActionMirrorOption, TcActionOption, TcActionType,
    TcAttribute, TcFilterU32, TcFilterU32Option, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption,
    TcU32Key, TcU32OptionFlags, TcU32Selector, TcU32SelectorFlags,
};

use super::Netlink;
use crate::Result;

/// What has the place of a link's ingress qdisc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressQdisc {
    /// Its kind: `ingress`, or `clsact`, which has filters for what the link sends as well.
    pub kind: String,
    /// Its filters for what arrives, in their order.
    pub filters: Vec<IngressFilter>,
}

/// What meets a packet that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IngressFilter {
    /// All packets are given to another link, which sends them.
    Redirect {
        /// The index of that link; 0 if it is gone, and then every packet is dropped.
        to: u32,
    },
    /// Another filter, of this kind.
    Other(String),
}

/// The kind of the older of the two qdiscs for the place, which is for what arrives alone.
const INGRESS: &str = "ingress";
/// The number of the qdisc that has the place (`qdisc_create` in net/sched/sch_api.c).
const HANDLE: TcHandle = TcHandle { major: u16::MAX, minor: 0 };
/// Its filters for what arrives, in either kind.
const ARRIVALS: TcHandle = TcHandle { major: u16::MAX, minor: TcHandle::MIN_INGRESS };
/// Packets of all protocols (`ETH_P_ALL`), in the order of bytes of the network.
const ALL_PROTOCOLS: u16 = 3_u16.to_be();

impl Netlink {
    /// What has the place of a link's ingress qdisc; `None` if nothing has.
    pub fn ingress_qdisc(&self, index: u32) -> Result<Option<IngressQdisc>> {
        let Some(kind) = self.ingress_kind(index)? else { return Ok(None) };
        let filters = self.filters_at(index, ARRIVALS)?.iter().filter_map(read).collect();
        Ok(Some(IngressQdisc { kind, filters }))
    }

    /// Whether a link has a clsact qdisc.
    pub fn has_clsact(&self, index: u32) -> Result<bool> {
        Ok(self.ingress_kind(index)?.is_some_and(|kind| kind == "clsact"))
    }

    /// The kind of what has the place. The kernel lists the disciplines of all links or says that of one place; this
    /// asks for the place.
    pub fn ingress_kind(&self, index: u32) -> Result<Option<String>> {
        let mut question = TcMessage::with_index(index.cast_signed());
        question.header.parent = TcHandle::INGRESS;
        // The answer is a notification, which comes to a sender that asks for an echo (`tc_get_qdisc` in
        // net/sched/sch_api.c).
        let found = self
            .exchange(Message::GetQueueDiscipline(question), NLM_F_ACK | NLM_F_ECHO)
            .map_err(|error| self.error(format!("look for an ingress qdisc of link {index}"), error));
        match found {
            Ok(answers) => Ok(answers.iter().find_map(|answer| match answer {
                Message::NewQueueDiscipline(qdisc) => kind(qdisc).map(str::to_owned),
                _ => None,
            })),
            // A link that had one has a place for it still, which the kernel has nothing to say of.
            Err(error) if error.is(libc::ENOENT) || error.is(libc::EINVAL) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives all that arrives at a link to another one, which sends it: an ingress qdisc with one filter. The qdisc
    /// comes first, and stays without the filter if that fails. `EEXIST` if the link has such a qdisc, or a clsact;
    /// `ENOENT` if this kernel lacks the qdisc, the filter (`cls_u32`) or its action (`act_mirred`).
    pub fn ingress_redirect(&self, index: u32, to: u32) -> Result<()> {
        let qdisc = Message::NewQueueDiscipline(place(index));
        let attempted = format!("make an ingress qdisc of link {index}");
        self.change(qdisc, NLM_F_CREATE | NLM_F_EXCL, attempted)?;
        let filter = Message::NewTrafficFilter(redirect(index, to));
        let attempted = format!("give what arrives at link {index} to link {to}");
        self.change(filter, NLM_F_CREATE | NLM_F_EXCL, attempted)
    }

    /// Removes a link's ingress qdisc with all its filters. `ENOENT` or `EINVAL` if it has none.
    pub fn delete_ingress_qdisc(&self, index: u32) -> Result<()> {
        let attempted = format!("remove the ingress qdisc of link {index}");
        self.change(Message::DelQueueDiscipline(place(index)), 0, attempted)
    }
}

/// A message about a link's ingress qdisc.
fn place(index: u32) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = TcHandle::INGRESS;
    message.header.handle = HANDLE;
    message.attributes.push(TcAttribute::Kind(INGRESS.to_owned()));
    message
}

/// The first and only filter, of a kind that most kernels have.
fn redirect(index: u32, to: u32) -> TcMessage {
    let mut mirror = TcMirror::default();
    mirror.eaction = TcMirrorActionType::EgressRedir;
    mirror.ifindex = to;
    mirror.generic.action = TcActionType::Stolen;
    let parameters = TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror));
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind(TcActionMirror::KIND.to_owned()),
        TcActionAttribute::Options(vec![parameters]),
    ];
    let options = [TcFilterU32Option::Selector(everything()), TcFilterU32Option::Action(vec![action])];
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = ARRIVALS;
    message.header.info = 1 << 16 | u32::from(ALL_PROTOCOLS);
    message.attributes.push(TcAttribute::Kind(TcFilterU32::KIND.to_owned()));
    message.attributes.push(TcAttribute::Options(options.map(TcOption::U32).into()));
    message
}

/// One comparison of no bits, as `match u32 0 0` is in tc.
fn everything() -> TcU32Selector {
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.keys = vec![TcU32Key::default()];
    selector.nkeys = 1;
    selector
}

/// A filter as the kernel lists it; `None` for what is listed beside: the priority itself, and u32's tables.
fn read(message: &TcMessage) -> Option<IngressFilter> {
    let kind = kind(message)?;
    let options = u32_options(message);
    let has_selector = options.iter().any(|option| matches!(option, TcFilterU32Option::Selector(_)));
    let is_filter =
        if kind == TcFilterU32::KIND { has_selector } else { u32::from(message.header.handle) != 0 };
    let to = redirected(message, &options);
    is_filter.then(|| {
        to.map_or_else(|| IngressFilter::Other(kind.to_owned()), |to| IngressFilter::Redirect { to })
    })
}

/// The link to which a filter gives everything; `None` if it lets a packet by or does something else.
fn redirected(message: &TcMessage, options: &[&TcFilterU32Option]) -> Option<u32> {
    let lets_by = |option: &&TcFilterU32Option| match option {
        TcFilterU32Option::Selector(selector) => *selector != everything(),
        TcFilterU32Option::Indev(_) | TcFilterU32Option::Mark(_) | TcFilterU32Option::Link(_) => true,
        TcFilterU32Option::Flags(flags) => flags.contains(TcU32OptionFlags::SkipSw),
        _ => false,
    };
    let in_first_chain = !message
        .attributes
        .iter()
        .any(|attribute| matches!(attribute, TcAttribute::Chain(chain) if *chain != 0));
    let protocol = message.header.info & u32::from(u16::MAX);
    if protocol != u32::from(ALL_PROTOCOLS) || !in_first_chain || options.iter().any(lets_by) {
        return None;
    }
    let actions = options.iter().find_map(|option| match option {
        TcFilterU32Option::Action(actions) => Some(actions),
        _ => None,
    })?;
    let [action] = actions.as_slice() else { return None };
    action.attributes.iter().find_map(|attribute| {
        let TcActionAttribute::Options(options) = attribute else { return None };
        options.iter().find_map(|option| match option {
            TcActionOption::Mirror(TcActionMirrorOption::Parms(mirror)) => taken(mirror),
            _ => None,
        })
    })
}

/// The link that gets a packet for itself alone, to send it.
fn taken(mirror: &TcMirror) -> Option<u32> {
    let is_taken =
        mirror.eaction == TcMirrorActionType::EgressRedir && mirror.generic.action == TcActionType::Stolen;
    is_taken.then_some(mirror.ifindex)
}

fn u32_options(message: &TcMessage) -> Vec<&TcFilterU32Option> {
    let options = message.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    let of_u32 = options.flatten().filter_map(|option| match option {
        TcOption::U32(option) => Some(option),
        _ => None,
    });
    of_u32.collect()
}

fn kind(message: &TcMessage) -> Option<&str> {
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    })
}
