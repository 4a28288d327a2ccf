//! Segments that are sent again: how many, why, and whether it was needed.

use tune::Since;

use super::{IP_SYSCTL, NETSTAT, SNMP, SNMP_COUNTER};
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::window::SYN_SENT;
use crate::{Check, CheckGroup, Observation, Window};

/// Findings about packets that this host sends and loses itself, which TCP notices later. Packets lost on reception
/// (rings, damaged frames) are retransmitted by other hosts and are not among them. A backlog also holds packets sent
/// over veths and the loopback.
const LOST_HERE: &[&str] = &["HG002", "HG003", "HG033", "HG034", "HG037", "HG043", "HG048", "HG051"];

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Loss and retransmission",
    checks: &[
        Check {
            code: "HG070",
            title: "many segments are retransmitted",
            why: "Each loss costs a connection at least a round trip, and roughly halves its rate. In a data \
                  centre one in a thousand is a lot, on the Internet one in a hundred.",
            remedy: "find where they are lost: on this host (drops above), on the path or at the receiver; the kinds give hints",
            verify: "RetransSegs without TCPSynRetrans against OutSegs falls",
            source: SNMP_COUNTER,
            follows: LOST_HERE,
            run: again,
            ..USUAL
        },
        Check {
            code: "HG071",
            title: "losses are repaired by timeouts",
            why: "A timeout is at least 200 ms by default. It is needed where no acknowledgements arrive that \
                  could reveal the loss: with few packets in flight, or many lost at once.",
            remedy: "in a data centre a lower rto_min on its routes; thin streams may ask for linear timeouts",
            knobs: &["rto_min", "tcp_rto_min_us", "tcp_thin_linear_timeouts"],
            verify: "TCPTimeouts against RetransSegs falls",
            source: SNMP_COUNTER,
            follows: &["HG086", "HG101", "HG002", "HG034", "HG043", "HG048", "HG051"],
            run: timeouts,
        },
        Check {
            code: "HG072",
            title: "segments are retransmitted that were not lost",
            why: "The receiver reports that it had them already (DSACK): they came late or in another order, or \
                  the minimum RTO is shorter than the delay of the acknowledgements.",
            remedy: "raise rto_min where it was lowered; otherwise find what reorders packets on the path",
            knobs: &["rto_min", "tcp_rto_min_us", "tcp_reordering"],
            verify: "TCPDSACKRecv against RetransSegs falls",
            source: SNMP_COUNTER,
            follows: &["HG074"],
            run: spurious,
        },
        Check {
            code: "HG073",
            title: "the last packets of answers are lost",
            why: "No packet follows that would reveal the loss, so a probe or a timeout has to. Short answers \
                  suffer most; it shows in the tail of response times and not in the rate.",
            remedy: "shorter bursts (fq paces them), a larger queue at the bottleneck, or less loss",
            knobs: &["qdisc", "tcp_early_retrans"],
            verify: "TCPLossProbeRecovery grows more slowly",
            source: "RFC 8985",
            follows: LOST_HERE,
            run: tail,
        },
        Check {
            code: "HG074",
            title: "packets arrive in another order",
            why: "There are several paths between the hosts, or several queues for one flow. TCP mistakes much \
                  reordering for loss, and merges fewer packets.",
            remedy: "let routers and bonds hash by flow; do not steer packets of one flow to several CPUs",
            knobs: &["tcp_reordering"],
            verify: "TCPSACKReorder and TCPTSReorder grow more slowly",
            source: SNMP_COUNTER,
            run: reordering,
            ..USUAL
        },
        Check {
            code: "HG075",
            title: "retransmissions are lost too",
            why: "Losses come in bursts that outlast a round trip: a policer with a fixed rate, or an outage.",
            remedy: "stay below the policer's rate: pace (fq with maxrate), or a congestion control that measures the rate",
            knobs: &["qdisc", "congctl"],
            verify: "TCPLostRetransmit grows more slowly",
            source: SNMP_COUNTER,
            follows: LOST_HERE,
            run: lost_again,
        },
        Check {
            code: "HG076",
            title: "connections end because the peer no longer answers",
            why: "The kernel retransmitted until it gave up, which takes 15 minutes by default. The peer died, or \
                  a device in between forgot the connection.",
            remedy: "keepalives shorter than what middleboxes remember (often 350 s), or give up sooner",
            knobs: &["tcp_keepalive_time", "tcp_retries2"],
            verify: "TCPAbortOnTimeout no longer grows",
            source: SNMP_COUNTER,
            run: given_up,
            ..USUAL
        },
    ],
};

/// How often the first packet of a connection is sent again at most: since Linux 6.5 a few times each second before the
/// waits double (`tcp_write_timeout` in net/ipv4/tcp_timer.c adds `tcp_syn_linear_timeouts` in `TCP_SYN_SENT`).
fn syn_retries(window: &Window<'_>) -> u64 {
    let linear = if window.kernel() >= Since(6, 5) { 4 } else { 0 };
    let linear = window.number("net/ipv4/tcp_syn_linear_timeouts").unwrap_or(linear);
    window.number("net/ipv4/tcp_syn_retries").unwrap_or(6).saturating_add(linear)
}

/// Segments that were sent again, except the packets of handshakes: those are in RetransSegs and in TCPSynRetrans
/// (`__tcp_retransmit_skb`, `tcp_rtx_synack`), and have a finding of their own.
pub(super) fn sent_again(window: &Window<'_>) -> u64 {
    window.grew("TcpRetransSegs").saturating_sub(window.grew("TcpExtTCPSynRetrans"))
}

/// Timeouts of data. Connecting from here also causes timeouts, one for each retransmitted first packet; retransmitted
/// answers to peers that connect here are in TCPSynRetrans and in no count of timeouts. The two cannot be separated,
/// so no more is subtracted than the connecting sockets can have had.
pub(super) fn timeouts_of_data(window: &Window<'_>) -> u64 {
    let sockets = window.before.answers.sockets.iter().flatten();
    let connecting = sockets.filter(|socket| socket.state == SYN_SENT).count() as u64;
    let most = (window.grew("TcpActiveOpens") + connecting).saturating_mul(syn_retries(window));
    window.grew("TcpExtTCPTimeouts").saturating_sub(window.grew("TcpExtTCPSynRetrans").min(most))
}

fn again(window: &Window<'_>) -> Vec<Observation> {
    let (again, sent) = (sent_again(window), window.grew("TcpOutSegs"));
    let lost = share(again, sent);
    // A handful is chance, however few were sent.
    if again < 10 || lost < 0.001 {
        return Vec::new();
    }
    let kinds = [
        ("in recovery", "TcpExtTCPFastRetrans"),
        ("after a timeout", "TcpExtTCPSlowStartRetrans"),
        ("timeouts", "TcpExtTCPTimeouts"),
        ("tail probes", "TcpExtTCPLossProbes"),
    ];
    let kinds: Vec<String> =
        kinds.iter().map(|(word, name)| format!("{word} {}", window.grew(name))).collect();
    let seen = Observation::with_effect(lost > 0.01, 10.0 + lost * 300.0)
        .saw(format!("{again} of {sent} segments, {}", percent(lost)), SNMP)
        .saw(kinds.join(", "), NETSTAT);
    vec![seen]
}

fn timeouts(window: &Window<'_>) -> Vec<Observation> {
    let (timeouts, again) = (timeouts_of_data(window), sent_again(window));
    let of_all = share(timeouts, again.max(timeouts));
    if timeouts < 5 || of_all < 0.2 {
        return Vec::new();
    }
    let saw = format!("{timeouts} timeouts among {again} retransmitted segments, {}", percent(of_all));
    let lost = share(again, window.grew("TcpOutSegs"));
    vec![Observation::with_effect(lost > 0.001, 15.0 + of_all * 20.0).saw(saw, NETSTAT)]
}

fn spurious(window: &Window<'_>) -> Vec<Observation> {
    let again = sent_again(window);
    let needless = window.grew("TcpExtTCPDSACKRecv") + window.grew("TcpExtTCPSpuriousRTOs");
    let of_all = share(needless, again);
    if needless < 10 || of_all < 0.3 {
        return Vec::new();
    }
    let lost = share(again, window.grew("TcpOutSegs"));
    let saw =
        format!("{needless} of {again} retransmitted segments had arrived, {}", percent(of_all.min(1.0)));
    vec![Observation::with_effect(lost > 0.001, 20.0 + of_all.min(1.0) * 20.0).saw(saw, NETSTAT)]
}

fn tail(window: &Window<'_>) -> Vec<Observation> {
    let (repaired, again) = (window.grew("TcpExtTCPLossProbeRecovery"), sent_again(window));
    let of_all = share(repaired, again);
    if repaired < 5 || of_all < 0.2 {
        return Vec::new();
    }
    let lost = share(again, window.grew("TcpOutSegs"));
    let saw = format!(
        "{repaired} losses of last packets were found by probes, {} of {again} retransmitted",
        percent(of_all)
    );
    vec![Observation::with_effect(lost > 0.001, 12.0 + of_all * 10.0).saw(saw, NETSTAT)]
}

fn reordering(window: &Window<'_>) -> Vec<Observation> {
    let names = ["TcpExtTCPSACKReorder", "TcpExtTCPTSReorder", "TcpExtTCPRenoReorder"];
    let events: u64 = names.iter().map(|name| window.grew(name)).sum();
    let sent = window.grew("TcpOutSegs");
    let of_all = share(events, sent);
    if events < 10 || of_all < 0.0005 {
        return Vec::new();
    }
    let undone = ["TcpExtTCPDSACKUndo", "TcpExtTCPFullUndo", "TcpExtTCPPartialUndo"];
    let undone: u64 = undone.iter().map(|name| window.grew(name)).sum();
    let seen = Observation::with_effect(
        undone > 0 || window.grew("TcpExtTCPDSACKRecv") >= 10,
        20.0 + of_all * 100.0,
    )
    .saw(format!("{events} times in {sent} segments; {undone} reductions of windows were undone"), NETSTAT);
    vec![seen]
}

fn lost_again(window: &Window<'_>) -> Vec<Observation> {
    let (lost, again) = (window.grew("TcpExtTCPLostRetransmit"), sent_again(window));
    let of_all = share(lost, again);
    if lost < 10 || of_all < 0.1 {
        return Vec::new();
    }
    let rate = share(again, window.grew("TcpOutSegs"));
    let saw = format!("{lost} of {again} retransmitted segments, {}", percent(of_all));
    vec![Observation::with_effect(rate > 0.001, 12.0 + of_all * 10.0).saw(saw, NETSTAT)]
}

fn given_up(window: &Window<'_>) -> Vec<Observation> {
    // A connection that was never made counts too (`tcp_write_err`, called in any state), and ends as a failed attempt.
    let failed = window.grew("TcpAttemptFails");
    let ended = window.grew("TcpExtTCPAbortOnTimeout").saturating_sub(failed);
    if ended == 0 {
        return Vec::new();
    }
    let saw = format!("{ended} connections (TCPAbortOnTimeout without AttemptFails)");
    // Of the clients of a public server some always disappear.
    let others = window.grew("TcpPassiveOpens") + window.grew("TcpActiveOpens");
    let effect = ended >= 3 && share(ended, others + ended) > 0.01;
    vec![
        Observation::with_effect(effect, 10.0 + (ended as f64).min(30.0))
            .saw(saw, format!("{NETSTAT}; {IP_SYSCTL}, tcp_retries2")),
    ]
}
