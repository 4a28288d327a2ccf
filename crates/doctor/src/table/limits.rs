//! What limits each heavy connection: the receiver, the send buffer, loss, the path, or the program.

use std::collections::BTreeMap;

use linux::sock_diag::{TcpInfo, TcpSocket};

use super::{NETSTAT, SOCK_DIAG};
use crate::finding::USUAL;
use crate::rate::{bits_per_s, bytes, millis, percent, share};
use crate::window::Connection;
use crate::{Check, CheckGroup, Observation, Window};

/// The most findings of one kind; further connections of one service are reported as one.
const SERVICES_MAX: usize = 5;
/// Less than this in a window is no heavy connection.
const HEAVY_BYTES: u64 = 100_000;
/// Half of the window the receiver's advertised share of its buffer (`tcp_scaling_ratio`, `SOCK_MIN…`) stands for data.
const WINDOW_OF_BUFFER: f64 = 0.5;

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "What limits busy connections",
    checks: &[
        Check {
            code: "HG080",
            title: "the receiver's window limits a connection",
            why: "The sender had data and the network had room, but the sender waited for room at the receiver. A \
                  window of W bytes carries at most W in each round trip.",
            remedy: "at the receiver: a larger buffer, no fixed SO_RCVBUF, or a program that reads faster",
            knobs: &["tcp_rmem", "tcp_window_scaling", "rmem_max"],
            verify: "rwnd_limited in ss -ti grows more slowly, and the rate rises",
            source: "tcp_info, Linux 4.10 (tcp_chrono)",
            follows: &["HG121"],
            run: by_window,
        },
        Check {
            code: "HG081",
            title: "the send buffer limits a connection",
            why: "The network could carry more than the send buffer holds: sent data stays in it for a round trip, \
                  until it is acknowledged.",
            remedy: "let the program leave SO_SNDBUF alone, so that the kernel sizes the buffer",
            knobs: &["tcp_wmem", "wmem_max"],
            verify: "sndbuf_limited in ss -ti grows more slowly, and the rate rises",
            source: "tcp_info, Linux 4.10 (tcp_chrono)",
            follows: &["HG110"],
            run: by_buffer,
        },
        Check {
            code: "HG082",
            title: "loss limits a connection: larger buffers cannot help here",
            why: "A loss-based congestion control cannot go faster than about MSS · 1.22 / (RTT · √loss) (Mathis \
                  and others, 1997), whatever its buffers. This connection is at that limit.",
            remedy: "less loss, larger packets, or a congestion control that does not treat each loss as congestion (bbr); not buffers",
            knobs: &["congctl", "tcp_congestion_control", "mtu"],
            verify: "the connection's rate rises above the formula's",
            source: "Mathis et al., The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm, 1997",
            follows: &["HG034", "HG043"],
            run: by_loss,
        },
        Check {
            code: "HG083",
            title: "the path limits a connection",
            why: "There was data, room at both ends, and almost no loss: the congestion window is what the path \
                  carries, or is still growing.",
            remedy: "nothing on this host: this is the path's bandwidth",
            verify: "another path or time gives another rate",
            source: "tcp_info, Linux 4.10 (tcp_chrono)",
            run: by_path,
            ..USUAL
        },
        Check {
            code: "HG084",
            title: "the program limits a connection, not the network",
            why: "Most of the time there was nothing to send.",
            remedy: "nothing in the network: examine the program, its disk, its database",
            verify: "the share of busy time in ss -ti rises",
            source: "tcp_info, Linux 4.10 (tcp_chrono)",
            run: by_program,
            ..USUAL
        },
        Check {
            code: "HG085",
            title: "a queue on the path makes packets wait",
            why: "The round trip takes several times as long as it did when the path was empty. What fills that queue is often \
                this very connection.",
            remedy: "a congestion control that keeps queues short (bbr), or pace below the bottleneck; the queue is elsewhere",
            knobs: &["congctl", "tcp_notsent_lowat", "qdisc"],
            verify: "rtt in ss -ti comes near minrtt under load",
            source: "RFC 7567",
            follows: &["HG044"],
            run: waiting,
        },
        Check {
            code: "HG086",
            title: "the minimum RTO is 200 ms on a path of a few milliseconds or less",
            why: "After a loss that only a timer finds, the kernel waits at least 200 ms: hundreds of round trips in a data \
                centre. It was chosen for the Internet and for peers that delay acknowledgements.",
            remedy: "5 to 10 ms on the routes inside the data centre, and nowhere else",
            knobs: &["rto_min", "tcp_rto_min_us"],
            verify: "rto in ss -ti is below 50 ms on these connections, and the tail of response times is shorter",
            source: "RFC 6298; tcp_rto_min in include/net/tcp.h",
            run: minimum_rto,
            ..USUAL
        },
    ],
};

/// Connections that had data to send for a fifth of the window, and transferred some.
fn heavy<'a>(window: &Window<'a>) -> Vec<Connection<'a>> {
    let all = window.connections().into_iter();
    all.filter(|connection| connection.acked() >= HEAVY_BYTES && connection.busy_share() > 0.2).collect()
}

/// One finding a service, of the connection that carried most; the others are counted.
fn one_per_service(
    window: &Window<'_>,
    limited: impl Fn(&Connection<'_>) -> Option<Observation>,
) -> Vec<Observation> {
    let mut services: BTreeMap<_, Vec<(u64, Observation)>> = BTreeMap::new();
    for connection in heavy(window) {
        if let Some(seen) = limited(&connection) {
            let service = services.entry(connection.service()).or_default();
            service.push((connection.acked(), seen.on(connection.name())));
        }
    }
    let mut found: Vec<(u64, Observation)> = services
        .into_values()
        .filter_map(|mut of_service| {
            let sum = of_service.iter().map(|(acked, _)| acked).sum();
            let others = of_service.len() - 1;
            let at = (0..of_service.len()).max_by_key(|at| of_service[*at].0)?;
            let (_, mut seen) = of_service.swap_remove(at);
            if others > 0 {
                seen.subject += &format!(" and {others} more");
            }
            Some((sum, seen))
        })
        .collect();
    found.sort_by_key(|(acked, _)| std::cmp::Reverse(*acked));
    found.into_iter().take(SERVICES_MAX).map(|(_, seen)| seen).collect()
}

/// What a connection carries, and what it has in flight at that rate.
fn figures(connection: &Connection<'_>) -> String {
    let (rate, rtt_us) = (connection.goodput(), f64::from(connection.lasting_rtt()));
    let in_flight = bytes(rate * rtt_us / 1e6);
    format!("{} over {} round trip: {in_flight} in flight", bits_per_s(rate), millis(rtt_us))
}

fn by_window(window: &Window<'_>) -> Vec<Observation> {
    one_per_service(window, |connection| {
        let limited = connection.rwnd_share();
        if limited < 0.2 {
            return None;
        }
        let (peers, rtt) = (f64::from(connection.now.snd_wnd), f64::from(connection.lasting_rtt().max(1)));
        let mut seen = Observation::warning(limited * connection.busy_share() * 90.0)
            .saw(format!("limited for {} of its busy time", percent(limited)), SOCK_DIAG)
            .saw(figures(connection), SOCK_DIAG);
        // Linux reports the window since 5.4.
        if peers > 0.0 {
            let most = bits_per_s(peers / rtt * 1e6);
            seen = seen.saw(
                format!("a window of {} carries {most} at most over {}", bytes(peers), millis(rtt)),
                SOCK_DIAG,
            );
        }
        // On the same network a window that is too small is not the path's length but a program that does not read.
        let long = connection.now.min_rtt > 5000;
        Some(if long {
            seen
        } else {
            seen.remedy("over so short a path the window is full because the program at the receiver reads too slowly")
        })
    })
}

/// The kernel notices a full send buffer only if it could send at that moment. Otherwise a full buffer shows in this
/// way: all its data is in flight, and the congestion window has room for more. A buffer also holds the kernel's own
/// share of each packet, about a third for small ones. The condition must hold in both snapshots, so that it is not
/// momentary, if data was in flight at the first.
fn is_buffer_full(connection: &Connection<'_>) -> bool {
    let full = |socket: &TcpSocket, tcp: &TcpInfo| {
        let buffer = socket.memory.map_or(0, |memory| memory.send_buffer);
        let all_sent = tcp.unacked > 0 && tcp.notsent_bytes < 2 * tcp.snd_mss;
        let filled = buffer > 0 && f64::from(socket.wqueue) > f64::from(buffer) * 0.4;
        let may_send = tcp.snd_cwnd * 2 > tcp.unacked * 3 && tcp.snd_wnd / 2 > socket.wqueue;
        all_sent && filled && may_send
    };
    full(connection.socket, connection.now)
        && (connection.then.unacked == 0
            || connection.earlier.is_some_and(|socket| full(socket, &connection.then)))
        && connection.network_share() > 0.5
}

fn by_buffer(window: &Window<'_>) -> Vec<Observation> {
    let most = window.numbers("net/ipv4/tcp_wmem").get(2).copied().unwrap_or_default();
    one_per_service(window, |connection| {
        let (limited, full) = (connection.sndbuf_share(), is_buffer_full(connection));
        if limited < 0.1 && !full {
            return None;
        }
        let buffer = connection.socket.memory.map_or(0, |memory| u64::from(memory.send_buffer));
        let seen =
            Observation::warning(limited.max(if full { 0.5 } else { 0.0 }) * connection.busy_share() * 90.0)
                .saw(format!("limited for {} of its busy time", percent(limited)), SOCK_DIAG);
        let seen = if full {
            let (now, waits) = (connection.now, connection.socket.wqueue);
            let saw = format!(
                "all {} of it are in flight: {} segments, where the congestion window allows {}",
                bytes(waits.into()),
                now.unacked,
                now.snd_cwnd
            );
            seen.saw(saw, SOCK_DIAG)
        } else {
            seen
        };
        let seen = seen.saw(figures(connection), SOCK_DIAG).saw(
            format!("its buffer is {}, tcp_wmem allows {}", bytes(buffer as f64), bytes(most as f64)),
            SOCK_DIAG,
        );
        // A buffer that is as large as the kernel lets it grow; else the program has fixed it.
        let at_most = most > 0 && buffer as f64 > most as f64 * 0.9;
        let sizes = <[u64; 3]>::try_from(window.numbers("net/ipv4/tcp_wmem"));
        Some(match sizes {
            Ok(sizes) if at_most => seen
                .raise_last("tcp_wmem", sizes, most.saturating_mul(4))
                .remedy("twice the bandwidth-delay product is enough"),
            _ => seen,
        })
    })
}

/// Bytes a second at which a loss-based congestion control settles, in the formula of Mathis and others, with its
/// constant for a receiver that acknowledges each segment.
fn mathis(connection: &Connection<'_>) -> f64 {
    let (mss, rtt_s) = (f64::from(connection.now.snd_mss), f64::from(connection.lasting_rtt().max(1)) / 1e6);
    mss * 1.22 / (rtt_s * connection.loss().sqrt())
}

/// Loss-based ones settle near the formula; cubic above it where the product of bandwidth and delay is large.
fn is_loss_limited(connection: &Connection<'_>) -> bool {
    let again = connection.now.total_retrans.saturating_sub(connection.then.total_retrans);
    let loss_based = !connection.socket.congestion.starts_with("bbr");
    let near = mathis(connection) * 0.25..=mathis(connection) * 3.0;
    // In front of a standing queue, loss means that the queue overflowed: the path is full.
    let free = connection.network_share() > 0.5 && !is_buffer_full(connection) && !is_in_a_queue(connection);
    loss_based && again >= 3 && free && near.contains(&connection.goodput())
}

fn by_loss(window: &Window<'_>) -> Vec<Observation> {
    one_per_service(window, |connection| {
        if !is_loss_limited(connection) {
            return None;
        }
        let now = connection.now;
        let buffer = connection.socket.memory.map_or(0.0, |memory| f64::from(memory.send_buffer));
        let room =
            (buffer * WINDOW_OF_BUFFER).min(if now.snd_wnd > 0 { f64::from(now.snd_wnd) } else { f64::MAX });
        let seen = Observation::warning(connection.network_share() * connection.busy_share() * 80.0)
            .saw(format!("{} of its segments were retransmitted", percent(connection.loss())), SOCK_DIAG)
            .saw(figures(connection), SOCK_DIAG)
            .saw(
                format!(
                    "the formula: {} B · 1.22 / ({} · √{}) = {}",
                    now.snd_mss,
                    millis(connection.lasting_rtt().into()),
                    percent(connection.loss()),
                    bits_per_s(mathis(connection))
                ),
                "Mathis et al., 1997",
            )
            .saw(format!("buffer and window have room for {}", bytes(room)), SOCK_DIAG);
        Some(seen.set("tcp_congestion_control", "bbr").remedy(
            "loss is the limit and not congestion, if the path has bandwidth to spare; larger buffers cannot help",
        ))
    })
}

fn by_path(window: &Window<'_>) -> Vec<Observation> {
    one_per_service(window, |connection| {
        let limited = connection.network_share();
        if limited < 0.8
            || connection.busy_share() < 0.5
            || is_loss_limited(connection)
            || is_buffer_full(connection)
            || connection.sends_small()
        {
            return None;
        }
        let seen = Observation::information()
            .saw(
                format!(
                    "{} of its busy time, {} retransmitted",
                    percent(limited),
                    percent(connection.loss())
                ),
                SOCK_DIAG,
            )
            .saw(
                format!(
                    "{}; {} with {}",
                    figures(connection),
                    connection.now.snd_cwnd,
                    connection.socket.congestion
                ),
                SOCK_DIAG,
            );
        Some(seen)
    })
}

fn by_program(window: &Window<'_>) -> Vec<Observation> {
    let mut all: Vec<Connection<'_>> = window.connections();
    // A connection that began within the window was not there for all of it.
    all.retain(|connection| {
        connection.acked() >= HEAVY_BYTES * 10 && connection.then.rtt > 0 && connection.busy_share() < 0.2
    });
    all.sort_by_key(|connection| std::cmp::Reverse(connection.acked()));
    let seen = |connection: Connection<'_>| {
        Observation::information()
            .on(connection.name())
            .saw(format!("something to send for {} of the time", percent(connection.busy_share())), SOCK_DIAG)
            .saw(format!("{} acknowledged", bytes(connection.acked() as f64)), SOCK_DIAG)
    };
    all.into_iter().take(SERVICES_MAX).map(seen).collect()
}

/// Packets wait for twice the path's own round trip and for at least fifty milliseconds, which affects all traffic in
/// that queue. It must hold in both snapshots, so that it is a standing queue.
fn is_in_a_queue(connection: &Connection<'_>) -> bool {
    let (takes, least) = (connection.lasting_rtt(), connection.now.min_rtt.max(1));
    takes / 3 >= least && takes - least >= 50_000
}

fn waiting(window: &Window<'_>) -> Vec<Observation> {
    one_per_service(window, |connection| {
        let (takes, least) = (f64::from(connection.lasting_rtt()), f64::from(connection.now.min_rtt.max(1)));
        if !is_in_a_queue(connection) {
            return None;
        }
        let saw = format!("a round trip takes {}, and took {} at its best", millis(takes), millis(least));
        Some(
            Observation::warning((20.0 + takes / least).min(60.0))
                .saw(saw, SOCK_DIAG)
                .saw(figures(connection), SOCK_DIAG),
        )
    })
}

fn minimum_rto(window: &Window<'_>) -> Vec<Observation> {
    const USUAL_US: u32 = 200_000;
    let near: Vec<Connection<'_>> = window
        .connections()
        .into_iter()
        .filter(|connection| connection.now.rto >= USUAL_US && connection.now.backoff == 0)
        .filter(|connection| {
            connection.now.rtt > 0 && connection.now.rtt + 4 * connection.now.rttvar < 10_000
        })
        .collect();
    let again = |connection: &&Connection<'_>| connection.now.total_retrans > connection.then.total_retrans;
    let Some(first) = near.iter().find(again).or(near.first()) else { return Vec::new() };
    let timeouts = super::loss::timeouts_of_data(window);
    let hit = near.iter().filter(again).count();
    // Every connection within a data centre has that RTO; it matters where packets are lost.
    if hit == 0 && timeouts == 0 {
        return Vec::new();
    }
    let waited = share(timeouts * 200, (window.seconds() * 1000.0) as u64);
    let seen = Observation::with_effect(timeouts >= 3 && hit > 0, 25.0 + waited.min(1.0) * 50.0)
        .on(first.name())
        .saw(
            format!(
                "{} connections with a round trip below 10 ms have an RTO of 200 ms or more; this one: {} and {}",
                near.len(),
                millis(first.now.rtt.into()),
                millis(first.now.rto.into())
            ),
            SOCK_DIAG,
        )
        .saw(format!("{timeouts} timeouts, {hit} of these connections retransmitted"), NETSTAT);
    vec![match window.route_to(first.socket.peer.ip()) {
        _ if timeouts == 0 => seen.remedy("nothing now: no timer has expired"),
        Some(route) => seen.set_route("rto_min", 10, route),
        None => seen.remedy(
            "a route of its own to the data centre's addresses, and rto_min = 10 there: the default route leads across \
             the world too, where that is too short",
        ),
    }]
}
