//! How connections begin, pause and take turns.

use linux::sock_diag::TcpInfo;

use super::{IP_SYSCTL, NETSTAT, SOCK_DIAG};
use crate::finding::USUAL;
use crate::rate::{bits_per_s, bytes, millis, percent, share};
use crate::window::Connection;
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Starts and pauses of connections",
    checks: &[
        Check {
            code: "HG087",
            title: "connections start slowly again after each pause",
            why: "In a pause a connection halves its window with each RTO that passes, down to its first one, and \
                  then has to speed up again. On a long path a burst then takes several round trips instead of \
                  one.",
            remedy: "keep the window over pauses; with fq the burst that follows is paced",
            knobs: &["tcp_slow_start_after_idle", "initcwnd"],
            verify: "bursts take fewer round trips: busy time in ss -ti grows more slowly for the same bytes",
            source: IP_SYSCTL,
            run: begin_anew,
            ..USUAL
        },
        Check {
            code: "HG088",
            title: "connections leave slow start too early",
            why: "HyStart takes a growing round trip, or a long train of acknowledgements, as a sign of a filling \
                  queue, and ends the fast growth. If the round trip grew for another reason (radio, virtual \
                  machines, delayed interrupts), or something on the way collects acknowledgements, the window then \
                  grows by only a segment or so per round trip.",
            remedy: "a congestion control without it, or let cubic heed only the sign that does not mislead it here (hystart_detect: \
                1 trains of acknowledgements, 2 delay)",
            knobs: &["congctl", "tcp_congestion_control", "hystart_detect"],
            verify: "ssthresh in ss -ti is near the cwnd that the connection reaches",
            source: "Ha and Rhee, Taming the elephants: new TCP slow start; net/ipv4/tcp_cubic.c",
            run: left_early,
            ..USUAL
        },
        Check {
            code: "HG089",
            title: "small writes wait for acknowledgements that the peer delays",
            why: "A program writes an answer in two pieces. The second waits until the first is acknowledged \
                  (Nagle), and the peer delays that for up to 40 ms, in case it has data to send. Neither end \
                  lacks anything.",
            remedy: "in the program: one write instead of two, or TCP_NODELAY; otherwise acknowledge at once on the peer's route",
            knobs: &["quickack"],
            verify: "rtt in ss -ti comes near minrtt, and notsent is 0 most of the time",
            source: "RFC 896, RFC 1122 section 4.2.3.2; tcp(7), TCP_NODELAY",
            run: take_turns,
            ..USUAL
        },
    ],
};

/// No setting helps a connection that sends fewer bytes than this in a window.
const BYTES_MIN: u64 = 100_000;
/// If a larger share of its segments is retransmitted, loss is what makes a connection slow. A probe for the last
/// segment of a burst (TLP) may be sent without any loss.
const LOSS_MAX: f64 = 0.005;
/// On shorter paths a few round trips more are not felt.
const FAR_US: u32 = 5000;
/// Segments of a first window (`TCP_INIT_CWND`).
const FIRST_WINDOW: u32 = 10;
/// A threshold that no connection has found yet (`TCP_INFINITE_SSTHRESH`).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

/// Connections that transferred data over a long path with little loss, the largest first.
fn far_without_loss<'a>(window: &Window<'a>) -> Vec<Connection<'a>> {
    let mut all = window.connections();
    all.retain(|connection| {
        let lossless = connection.loss() <= LOSS_MAX;
        connection.now.min_rtt >= FAR_US && lossless && connection.acked() >= BYTES_MIN
    });
    all.sort_by_key(|connection| std::cmp::Reverse(connection.acked()));
    all
}

/// Reports the connection that transferred most on behalf of all.
fn on_first(seen: Observation, all: &[Connection<'_>]) -> Vec<Observation> {
    let more = all.len() - 1;
    let subject = all[0].name();
    vec![seen.on(if more > 0 { format!("{subject} and {more} more") } else { subject })]
}

fn begin_anew(window: &Window<'_>) -> Vec<Observation> {
    if window.number("net/ipv4/tcp_slow_start_after_idle") != Some(1) {
        return Vec::new();
    }
    let mut all = far_without_loss(window);
    // At rest at both readings, and it sent in between: so it restarted at least once. A window that grew beyond the
    // first one shows that its bursts are larger than that. BBR keeps what it knows.
    all.retain(|connection| {
        let at_rest = |tcp: &TcpInfo| tcp.rto > 0 && tcp.last_data_sent_ms > tcp.rto / 1000;
        at_rest(connection.now)
            && at_rest(&connection.then)
            && connection.now.snd_cwnd >= 2 * FIRST_WINDOW
            && connection.network_share() > 0.5
            && !connection.socket.congestion.starts_with("bbr")
    });
    let Some(first) = all.first() else { return Vec::new() };
    let now = first.now;
    let seen = Observation::with_effect(first.busy_share() > 0.05, 15.0 + first.busy_share() * 30.0)
        .saw(
            format!(
                "at rest for {} ms, longer than its RTO of {}, at both looks, and {} carried in between",
                now.last_data_sent_ms,
                millis(now.rto.into()),
                bytes(first.acked() as f64)
            ),
            SOCK_DIAG,
        )
        .saw(
            format!(
                "the window of {} segments, over {}, begins at {} again",
                now.snd_cwnd,
                millis(now.rtt.into()),
                after_pause(now)
            ),
            SOCK_DIAG,
        )
        .saw(
            format!(
                "sending took {} of the time, {} of that for the window",
                percent(first.busy_share()),
                percent(first.network_share())
            ),
            SOCK_DIAG,
        );
    on_first(seen.set("tcp_slow_start_after_idle", 0), &all)
}

/// Segments with which a connection that rests now begins again: half as many for each RTO beyond the first, but no
/// fewer than in its first window (`tcp_cwnd_restart` in net/ipv4/tcp_output.c). A route's `initcwnd` is not known.
fn after_pause(tcp: &TcpInfo) -> u32 {
    let halvings = tcp.last_data_sent_ms.saturating_sub(1) / (tcp.rto / 1000).max(1);
    let halved = tcp.snd_cwnd.checked_shr(halvings).unwrap_or_default();
    halved.max(FIRST_WINDOW.min(tcp.snd_cwnd))
}

fn left_early(window: &Window<'_>) -> Vec<Observation> {
    let (by_train, by_delay) =
        (window.grew("TcpExtTCPHystartTrainDetect"), window.grew("TcpExtTCPHystartDelayDetect"));
    let ended = by_train + by_delay;
    let at = window.grew("TcpExtTCPHystartTrainCwnd") + window.grew("TcpExtTCPHystartDelayCwnd");
    if ended == 0 {
        return Vec::new();
    }
    let mut all = far_without_loss(window);
    // Without any loss the threshold is where slow start ended, and the path took much more later. Segments that the
    // peer reports as duplicates (DSACK) were not lost.
    all.retain(|connection| {
        let now = connection.now;
        connection.then.rtt == 0
            && now.total_retrans <= now.dsack_dups
            && now.snd_ssthresh < NO_THRESHOLD
            && now.snd_cwnd >= 2 * now.snd_ssthresh
            && connection.network_share() > 0.5
            && connection.busy_share() > 0.2
    });
    let Some(first) = all.first() else { return Vec::new() };
    let now = first.now;
    let rate = |segments: u32| {
        bits_per_s(f64::from(segments) * f64::from(now.snd_mss) / f64::from(now.rtt.max(1)) * 1e6)
    };
    let seen = Observation::warning(25.0)
        .saw(
            format!(
                "slow start ended at {} segments ({}); now there are {} ({}), and nothing was lost",
                now.snd_ssthresh,
                rate(now.snd_ssthresh),
                now.snd_cwnd,
                rate(now.snd_cwnd)
            ),
            SOCK_DIAG,
        )
        .saw(
            format!(
                "HyStart ended it {ended} times, {by_delay} of them for delay, at {:.0} segments on average",
                share(at, ended)
            ),
            NETSTAT,
        );
    let (heeds, sign) = if by_delay > by_train { (1, "trains of acknowledgements") } else { (2, "delay") };
    let remedy =
        format!("a congestion control without it; milder: hystart_detect={heeds}, which uses only {sign}");
    on_first(seen.set("tcp_congestion_control", "bbr").remedy(remedy), &all)
}

fn take_turns(window: &Window<'_>) -> Vec<Observation> {
    let mut all = window.connections();
    all.retain(|connection| {
        let now = connection.now;
        // A partial segment that waits behind one in flight although both windows have room for it.
        let held = now.unacked > 0 && (1..now.snd_mss).contains(&now.notsent_bytes);
        let room = now.snd_cwnd > now.unacked && !is_small(now.snd_wnd, now.snd_mss);
        // Some of its round trips are the peer's 40 ms, others the path's.
        let delayed = now.min_rtt < 5000 && (8000..60_000).contains(&now.rtt);
        connection.sends_small() && held && room && delayed
    });
    all.sort_by_key(|connection| std::cmp::Reverse(connection.now.rtt));
    let Some(first) = all.first() else { return Vec::new() };
    let now = first.now;
    let seen = Observation::warning(45.0)
        .saw(
            format!(
                "a round trip takes {} on average, and {} at its best",
                millis(now.rtt.into()),
                millis(now.min_rtt.into())
            ),
            SOCK_DIAG,
        )
        .saw(
            format!(
                "{} of less than a segment wait behind {} on their way, with room for {}",
                bytes(now.notsent_bytes.into()),
                now.unacked,
                now.snd_cwnd
            ),
            SOCK_DIAG,
        );
    on_first(seen, &all)
}

/// Linux reports the peer's window since 5.4; before that it is 0.
fn is_small(window: u32, segment: u32) -> bool {
    window > 0 && window < 2 * segment
}
