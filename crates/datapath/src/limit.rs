//! What a pod may send and receive at most: a token bucket for each direction.

use linux::qdisc::Tbf;
use linux::{IfName, LinkKind, Qdisc};
use plan::{Plan, SetRootQdisc, Step};

use crate::draft::Draft;
use crate::{Attach, NodeSpec, Pod, RateLimit, ReceiveLimit, SpecError, links};

/// Bytes of an Ethernet header, which count.
const HEADER_BYTES: u32 = 14;
/// For how many milliseconds packets may wait, so that TCP can fill the rate over a path of that round trip and no
/// packet waits much longer. It is what the CNI project's plugin `bandwidth` waits beside its burst.
const QUEUE_MS: u64 = 25;
/// How many packets may wait at least, so that a slow rate leaves room for the ten that TCP begins with (RFC 6928).
const QUEUE_PACKETS_MIN: u64 = 10;

/// The buckets of a pod. What it sends waits in the pod, where the sending socket feels it. What it receives waits in
/// the node, before its link; where it has none there, in the pod, behind its interface.
///
/// # Errors
/// A packet would never pass, or what the pod receives waits nowhere.
pub(crate) fn plan(
    attach: &dyn Attach,
    node: &NodeSpec,
    pod: &Pod,
    mtu_bytes: u32,
) -> Result<Plan, SpecError> {
    let mut plan = Plan::new();
    let refused = |why: String| SpecError { what: format!("pod {} of node {}", pod.id, node.id), why };
    if let Some(limit) = pod.limits.send {
        plan.push(&pod.place, limit.at(&pod.ifname, mtu_bytes).map_err(refused)?);
    }
    if let Some(limit) = pod.limits.receive {
        match attach.receive_limit() {
            ReceiveLimit::NodeEnd => {
                plan.push(&node.place, limit.at(&links::node_end(pod), mtu_bytes).map_err(refused)?);
            }
            ReceiveLimit::Pod => plan.extend(in_pod(node, pod, limit, mtu_bytes).map_err(refused)?),
            ReceiveLimit::Nowhere(why) => {
                let attach = attach.name();
                return Err(refused(format!("what it receives is to be limited, and with {attach} {why}")));
            }
        }
    }
    Ok(plan)
}

/// A queue is for what a link sends. So what arrives at the pod's interface is sent by a link that gives it back as if
/// it had just arrived, and that link has the bucket.
fn in_pod(node: &NodeSpec, pod: &Pod, limit: RateLimit, mtu_bytes: u32) -> Result<Plan, String> {
    let (from, to) = (pod.ifname.clone(), links::arrivals(pod));
    let mut inside = Draft::at(&pod.place, node.families());
    inside.link(&to, LinkKind::Ifb, mtu_bytes, Some(links::arrivals_mac(node, pod)));
    inside.step(limit.at(&to, mtu_bytes)?);
    inside.up_without_ipv6(&to);
    inside.step(Step::AddRedirect { from, to });
    Ok(inside.into_plan())
}

impl RateLimit {
    fn at(self, link: &IfName, mtu_bytes: u32) -> Result<SetRootQdisc, String> {
        let RateLimit { rate_bytes_per_s, burst_bytes } = self;
        let frame_bytes = mtu_bytes + HEADER_BYTES;
        if rate_bytes_per_s == 0 || burst_bytes < frame_bytes {
            return Err(format!(
                "with {rate_bytes_per_s} bytes a second and {burst_bytes} at once its packets of {frame_bytes} bytes \
                 would never pass"
            ));
        }
        let waiting_bytes = rate_bytes_per_s.saturating_mul(QUEUE_MS) / 1000;
        let packets = (waiting_bytes / u64::from(frame_bytes)).max(QUEUE_PACKETS_MIN);
        let inner = Qdisc::Pfifo { limit: u32::try_from(packets).unwrap_or(u32::MAX) };
        let tbf = Tbf { rate_bytes_per_s, burst_bytes, inner };
        Ok(SetRootQdisc { link: link.clone(), qdisc: Qdisc::Tbf(Box::new(tbf)) })
    }
}
