//! What a step would change, without changing it.

use linux::netlink::{MetricState, QdiscInfo};

use crate::entry::Before;
use crate::error::StepError;
use crate::{Kernel, Look, Placed, Step, look, steps};

/// A step's old value and its new one, in the words of whoever would type it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// What is there now.
    pub old: String,
    /// What will be.
    pub new: String,
    /// The index of the link that it is about, if it is about one.
    pub index: Option<u32>,
    /// True if there is nothing to change.
    pub is_so: bool,
}

/// Looks at what a `Set…` step would change. `None` for steps of other kinds.
///
/// # Errors
/// What apply would say before it changes anything: the link, the queue or the parameter is not there, or the value is
/// out of a card's range.
pub fn preview(placed: &Placed, kernel: &mut Kernel) -> Result<Option<Preview>, StepError> {
    let Some(new) = new_value(&placed.step) else { return Ok(None) };
    if matches!(placed.step, Step::AddNftTable(_)) && look(placed, kernel)? == Look::So {
        return Ok(Some(Preview { old: new.clone(), new, index: None, is_so: true }));
    }
    let before = steps::before(kernel, placed)?;
    Ok(old_value(&before, &placed.step).map(|(old, index)| {
        let is_so = match (&placed.step, &before) {
            // The kernel tells options that nobody has asked for.
            (Step::SetRootQdisc { qdisc, .. }, Before::RootQdisc { qdisc: now, .. }) => {
                now.as_ref().and_then(QdiscInfo::qdisc).is_some_and(|now| qdisc.is_met_by(&now))
            }
            _ => old.split_whitespace().eq(new.split_whitespace()),
        };
        Preview { old, new, index, is_so }
    }))
}

/// Whether two steps are about the same thing, whatever each makes of it: of two that were done, the later one counts.
pub fn is_about_the_same(one: &Placed, other: &Placed) -> bool {
    one.place == other.place
        && match (&one.step, &other.step) {
            (Step::SetSysctl { key, .. }, Step::SetSysctl { key: other, .. }) => key == other,
            (Step::SetLinkMtu { link, .. }, Step::SetLinkMtu { link: other, .. })
            | (Step::SetRootQdisc { link, .. }, Step::SetRootQdisc { link: other, .. })
            | (Step::SetIndirection { link, .. }, Step::SetIndirection { link: other, .. }) => link == other,
            (Step::SetQueueCpus { link, queue, .. }, Step::SetQueueCpus { link: l, queue: q, .. }) => {
                (link, queue) == (l, q)
            }
            (Step::SetQueueFlows { link, rx, .. }, Step::SetQueueFlows { link: l, rx: r, .. }) => {
                (link, rx) == (l, r)
            }
            (
                Step::SetRouteMetric { dst, link, metric, .. },
                Step::SetRouteMetric { dst: d, link: l, metric: m, .. },
            ) => (dst, link, metric) == (d, l, m),
            (Step::SetNic { link, parameter, .. }, Step::SetNic { link: l, parameter: p, .. }) => {
                (link, parameter) == (l, p)
            }
            (Step::SetRssHash { link, hash }, Step::SetRssHash { link: l, hash: h }) => {
                link == l && hash.is_about_what(h)
            }
            (
                Step::SetLinkAttribute { link, attribute, .. },
                Step::SetLinkAttribute { link: l, attribute: a, .. },
            ) => (link, attribute) == (l, a),
            (Step::SetDebug { file, .. }, Step::SetDebug { file: other, .. }) => file == other,
            (Step::SetModule { parameter, .. }, Step::SetModule { parameter: other, .. }) => {
                parameter == other
            }
            (Step::SetIrqCpus { irq, name, .. }, Step::SetIrqCpus { irq: i, name: n, .. }) => {
                (irq, name) == (i, n)
            }
            (one, other) => one == other,
        }
}

fn new_value(step: &Step) -> Option<String> {
    Some(match step {
        Step::SetSysctl { value, .. } => value.clone(),
        Step::SetLinkMtu { mtu, .. } => mtu.to_string(),
        Step::SetQueueCpus { cpus, .. } | Step::SetIrqCpus { cpus, .. } => cpus_text(cpus),
        Step::SetQueueFlows { flows, .. } => flows.to_string(),
        Step::SetRouteMetric { value, .. } => value.to_string(),
        Step::SetRootQdisc { qdisc, .. } => qdisc.to_string(),
        Step::SetNic { value, .. } => value.to_string(),
        Step::SetIndirection { queues, .. } => queues_text(*queues),
        Step::SetRssHash { hash, .. } => hash.to_string(),
        Step::SetLinkAttribute { value, .. }
        | Step::SetDebug { value, .. }
        | Step::SetModule { value, .. } => value.to_string(),
        Step::AddNftTable(table) => format!("table {} {}", table.family.name(), table.name),
        _ => return None,
    })
}

fn old_value(before: &Before, step: &Step) -> Option<(String, Option<u32>)> {
    Some(match before {
        Before::Sysctl { value, .. } => (value.split_whitespace().collect::<Vec<_>>().join(" "), None),
        Before::Mtu { index, mtu, .. } => (mtu.to_string(), Some(*index)),
        Before::QueueCpus { index, cpus } => (cpus_text(cpus), Some(*index)),
        Before::IrqCpus { cpus } => (cpus_text(cpus), None),
        Before::QueueFlows { index, flows } => (flows.to_string(), Some(*index)),
        Before::RouteMetric { index, state } => (metric_text(state), Some(*index)),
        Before::RootQdisc { index, qdisc } => {
            let old =
                qdisc.as_ref().map(|old| old.qdisc().map_or_else(|| old.kind.clone(), |old| old.to_string()));
            (old.unwrap_or_else(|| "the kernel's own".to_owned()), Some(*index))
        }
        Before::Nic { index, value, .. } => (value.to_string(), Some(*index)),
        Before::Indirection { index, table } => {
            let Step::SetIndirection { queues, .. } = step else { return None };
            let used = table.iter().max().map_or(0, |last| last + 1);
            let even = *table == steps::spread(table.len(), used);
            let is_so = *table == steps::spread(table.len(), *queues);
            let used = if is_so { *queues } else { used };
            let how = if even || is_so { queues_text(used) } else { format!("unevenly over {used} queues") };
            (how, Some(*index))
        }
        Before::RssHash { index, was } => {
            let Step::SetRssHash { hash, .. } = step else { return None };
            // A symmetric key is called so where it was asked for.
            let old = if hash.is_met_by(was) { hash } else { was };
            (old.to_string(), Some(*index))
        }
        Before::Debug { value } | Before::Module { value } => (value.to_string(), None),
        Before::Absent => ("none".to_owned(), None),
        Before::LinkAttribute { index, value } => (value.to_string(), Some(*index)),
        _ => return None,
    })
}

fn cpus_text(cpus: &linux::CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

fn queues_text(queues: u32) -> String {
    format!("evenly over {queues} queue{}", if queues == 1 { "" } else { "s" })
}

fn metric_text(state: &MetricState) -> String {
    state.value.as_ref().map_or_else(|| "unset".to_owned(), ToString::to_string)
}

/// Whether a kernel parameter decides which code runs, or how it is protected: no step writes it, and undo does not
/// either. By its path, with dots or slashes, or by its last part.
pub fn is_about_code(name: &str) -> bool {
    steps::is_about_code(name)
}
