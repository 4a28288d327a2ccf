//! Settings that have no effect any more, that do harm, or that differ from the files that set them.

use tune::Since;

use super::{IP_SYSCTL, loss};
use crate::finding::USUAL;
use crate::rate::share;
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Settings",
    checks: &[
        Check {
            code: "HG120",
            title: "a setting has no effect on this kernel",
            why: "It was copied from a guide. It does nothing on this kernel, and distracts from settings that do.",
            remedy: "remove it from the file; `hostgap tune knobs` says what to do instead",
            knobs: &["tcp_tw_recycle", "tcp_low_latency", "tcp_adv_win_scale"],
            verify: "it is in no file below /etc/sysctl.d, and has its default",
            source: IP_SYSCTL,
            run: obsolete,
            ..USUAL
        },
        Check {
            code: "HG121",
            title: "an essential part of TCP is switched off",
            why: "Guides switched these off to save a few bytes or cycles. Without them windows stop at 64 KB, a loss costs a \
                timeout, or round trips are not measured.",
            remedy: "switch it on again",
            knobs: &[
                "tcp_sack",
                "tcp_timestamps",
                "tcp_window_scaling",
                "tcp_moderate_rcvbuf",
                "tcp_dsack",
                "tcp_early_retrans",
            ],
            verify: "new connections have it in ss -ti",
            source: IP_SYSCTL,
            run: switched_off,
            ..USUAL
        },
        Check {
            code: "HG122",
            title: "a file and the kernel have different values",
            why: "The value was changed after the start, or the file was read before the parameter existed (its \
                  module was loaded later). After the next start the value may be different.",
            remedy: "make both the same: apply the file (sysctl --system), or change it",
            verify: "the value is the file's",
            source: "sysctl.d(5)",
            run: drift,
            ..USUAL
        },
    ],
};

/// Parameters without effect that differ from their default.
const OBSOLETE: &[(&str, &str, Since, &str)] = &[
    ("net/ipv4/tcp_low_latency", "0", Since(4, 14), "does nothing since Linux 4.14"),
    ("net/ipv4/tcp_fack", "0", Since(4, 15), "does nothing since Linux 4.15"),
    ("net/ipv4/tcp_adv_win_scale", "1", Since(6, 6), "does nothing since Linux 6.6"),
];
/// Named in files, these are nowhere.
const REMOVED: &[(&str, &str)] = &[
    ("net/ipv4/tcp_tw_recycle", "was removed in Linux 4.12; it broke clients behind address translation"),
    ("kernel/sched_migration_cost_ns", "was moved out of /proc/sys in Linux 5.13"),
];

fn obsolete(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (key, default, since, what) in OBSOLETE {
        let now = window.sysctl(key).filter(|now| now != default && window.kernel() >= *since);
        if let Some(now) = now {
            let seen = Observation::information().on(key.replace('/', "."));
            found.push(seen.saw(format!("{now}, and it {what}"), format!("/proc/sys/{key}")));
        }
    }
    for (key, what) in REMOVED {
        let lines = window.after.configured.iter().filter(|line| line.key == *key);
        found.extend(lines.map(|line| {
            let seen = Observation::information().on(key.replace('/', "."));
            seen.saw(format!("set to {}, and it {what}", line.value), line.file.clone())
        }));
    }
    found
}

/// Switches that must be on: the parameter, the knob, and the symptom if it is off.
const NEEDED: &[(&str, &str, &str)] = &[
    ("net/ipv4/tcp_window_scaling", "tcp_window_scaling", "windows stop at 64 KiB"),
    ("net/ipv4/tcp_sack", "tcp_sack", "one loss is repaired a round trip"),
    (
        "net/ipv4/tcp_timestamps",
        "tcp_timestamps",
        "round trips are measured once a window, and tcp_tw_reuse does nothing",
    ),
    ("net/ipv4/tcp_moderate_rcvbuf", "tcp_moderate_rcvbuf", "receive buffers do not grow"),
    ("net/ipv4/tcp_dsack", "tcp_dsack", "senders do not learn of unnecessary retransmissions"),
    ("net/ipv4/tcp_early_retrans", "tcp_early_retrans", "lost ends of answers wait for a timeout"),
];

fn switched_off(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for (key, knob, effect) in NEEDED {
        if window.number(key) != Some(0) {
            continue;
        }
        let felt = is_felt(window, knob);
        let value = if *knob == "tcp_early_retrans" { 3 } else { 1 };
        let seen = Observation::with_effect(felt, 65.0)
            .on(key.replace('/', "."))
            .saw(format!("0: {effect}"), format!("/proc/sys/{key}"))
            .set(knob, value);
        found.push(seen);
    }
    found
}

/// Whether what a switch spares was missed in the window.
fn is_felt(window: &Window<'_>, knob: &str) -> bool {
    match knob {
        "tcp_window_scaling" | "tcp_moderate_rcvbuf" => {
            window.connections().iter().any(|connection| connection.rwnd_share() > 0.2)
        }
        // Where packets are lost, losses are repaired by timers that acknowledgements would have repaired.
        "tcp_sack" | "tcp_early_retrans" => {
            let lost = share(loss::sent_again(window), window.grew("TcpOutSegs"));
            lost > 0.001 && loss::timeouts_of_data(window) >= 5
        }
        // No counter shows what a measurement of a round trip more, or a word on needless repeats, would have spared.
        _ => false,
    }
}

fn drift(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    let lines: Vec<_> = window.configured().collect();
    for (at, line) in lines.iter().enumerate() {
        let overruled = lines[at + 1..].iter().any(|later| later.key == line.key);
        let Some(now) = window.sysctl(&line.key).filter(|now| !overruled && **now != *line.value) else {
            continue;
        };
        let seen = Observation::information()
            .on(line.key.replace('/', "."))
            .saw(format!("{:?}", line.value), line.file.clone())
            .saw(format!("{now:?}"), format!("/proc/sys/{}", line.key));
        found.push(seen);
    }
    found
}
