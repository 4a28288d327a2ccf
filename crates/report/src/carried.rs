//! What downloads and streams are read by: bytes and datagrams per second instead of times.

use record::{Experiment, Measure, WorkloadKind};

use crate::figures::{counted, percent, three_digits, trimmed};
use crate::quantities::TransferRates;
use crate::summary::Summary;

/// What CPU time is divided by.
pub(crate) fn cpu_unit(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "req",
        Measure::Bandwidth => "MB",
        Measure::Packets | Measure::Frames => "packet",
    }
}

/// What one unit of a measure is called in sentences.
pub(crate) fn subject(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "request",
        Measure::Bandwidth => "megabyte",
        Measure::Packets | Measure::Frames => "packet",
    }
}

/// How the trials of a race are read.
pub(crate) fn measure(summary: &Summary) -> Measure {
    summary.experiment.workload.kind.measure()
}

/// Megabits per second, with three digits.
pub(crate) fn mbit(mbit_per_s: f64) -> String {
    if mbit_per_s < 999.5 { three_digits(mbit_per_s) } else { format!("{mbit_per_s:.0}") }
}

/// The mean time of an object in milliseconds.
pub(crate) fn object_ms(carried: &TransferRates) -> Option<String> {
    carried.object_ms_mean.map(|ms| format!("{} ms", three_digits(ms)))
}

/// Nanoseconds of CPU time, or instructions, of a packet.
pub(crate) fn ns(ns: f64) -> String {
    if ns < 99.5 { three_digits(ns) } else { format!("{ns:.0}") }
}

/// What is counted in instructions where a virtual machine's clock does.
pub(crate) fn counted_of(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency | Measure::Bandwidth => "a request and its answer",
        Measure::Packets | Measure::Frames => "a packet",
    }
}

/// The share of datagrams that did not arrive.
pub(crate) fn loss(carried: &TransferRates) -> Option<String> {
    let loss = carried.loss?;
    Some(if loss > 0.0 && loss < 5e-5 { format!("{} %", trimmed(loss * 100.0, 5)) } else { percent(loss) })
}

/// The fewest and the most connections of a candidate: they may have numbers of their own.
pub(crate) fn connections(experiment: &Experiment) -> (u32, u32) {
    let of_all = experiment.workload.connections;
    let own = experiment.candidates.iter().filter_map(|candidate| candidate.connections);
    own.fold((of_all, of_all), |(fewest, most), own| (fewest.min(own), most.max(own)))
}

/// The workload in words; `None` for the default.
pub(crate) fn describe(experiment: &Experiment) -> Option<String> {
    let workload = &experiment.workload;
    let arrivals = if workload.arrivals.are_usual() { "" } else { "; random arrivals (Poisson)" };
    if workload.kind.is_usual() && !workload.tls && workload.cpu_us.is_none() && arrivals.is_empty() {
        return None;
    }
    let (fewest, most) = connections(experiment);
    let many = |noun: &str| match fewest == most {
        true => counted(most.into(), noun),
        false => format!("{fewest} to {most} {noun}s"),
    };
    let what = match workload.kind {
        WorkloadKind::Http => format!("requests on {}", many("permanent connection")),
        WorkloadKind::Connect => format!(
            "a connection for each request, {} at a time",
            if fewest == most { most.to_string() } else { format!("{fewest} to {most}") }
        ),
        WorkloadKind::Grpc => {
            format!("echo calls on {} of HTTP/2", many("permanent connection"))
        }
        WorkloadKind::Download => format!(
            "downloads by {}, {} each, a connection for each",
            many("client"),
            counted(workload.objects.unwrap_or(1).into(), "object")
        ),
        WorkloadKind::TcpRr => {
            format!("requests and answers of the same size on {}", many("TCP connection"))
        }
        WorkloadKind::UdpRr => {
            format!("datagrams and answers of the same size on {}", many("port"))
        }
        WorkloadKind::Verbs => {
            format!("messages and answers of the same size on {}", many("connection"))
        }
        WorkloadKind::TcpStream => {
            format!("bytes over TCP from client to server, {}", many("flow"))
        }
        WorkloadKind::Packets => format!(
            "frames that the kernel makes meet a filter; host's is {}",
            workload.filter.unwrap_or_default()
        ),
        WorkloadKind::UdpStream => {
            format!("datagrams from client to server, {}", many("flow"))
        }
    };
    let sessions = match (workload.kind.makes_connections(), workload.reuses_sessions()) {
        (true, true) => ", sessions resumed",
        (true, false) => ", full handshakes only",
        (false, _) => "",
    };
    let tls = if workload.tls { format!("; TLS{sessions}") } else { String::new() };
    let version = workload.http.map_or(String::new(), |version| format!("; HTTP/{}", version.name()));
    let cost =
        workload.cpu_us.map_or(String::new(), |us| format!("; each costs the server {us} µs of CPU time"));
    Some(format!("{}: {what}{version}{tls}{cost}{arrivals}", workload.kind.name()))
}

#[cfg(test)]
mod tests {
    use record::{Arrivals, Candidate, HttpVersion, Workload};

    use super::*;

    #[test]
    fn the_usual_workload_is_not_described() {
        let describe = |workload: &Workload| {
            describe(&Experiment { workload: workload.clone(), ..Experiment::default() })
        };
        assert_eq!(describe(&Workload::default()), None);
        let of = |kind| describe(&Workload::of(kind)).unwrap();
        assert_eq!(
            of(WorkloadKind::Download),
            "download: downloads by 8 clients, 5 objects each, a connection for each"
        );
        assert_eq!(of(WorkloadKind::Grpc), "grpc: echo calls on 32 permanent connections of HTTP/2");
        assert_eq!(of(WorkloadKind::UdpStream), "udp-stream: datagrams from client to server, 1 flow");
        let tls = Workload { tls: true, session_reuse: Some(false), ..Workload::of(WorkloadKind::Connect) };
        let expected = "connect: a connection for each request, 32 at a time; TLS, full handshakes only";
        assert_eq!(describe(&tls).unwrap(), expected);
        let old = Workload { http: Some(HttpVersion::Http10), ..Workload::of(WorkloadKind::Connect) };
        assert_eq!(describe(&old).unwrap(), "connect: a connection for each request, 32 at a time; HTTP/1.0");
        let costly = Workload { cpu_us: Some(250), ..Workload::default() };
        let expected = "http: requests on 32 permanent connections; each costs the server 250 µs of CPU time";
        assert_eq!(describe(&costly).unwrap(), expected);
        let random = Workload { arrivals: Arrivals::Poisson, ..Workload::default() };
        let expected = "http: requests on 32 permanent connections; random arrivals (Poisson)";
        assert_eq!(describe(&random).unwrap(), expected);
        let tls = Workload { tls: true, ..Workload::default() };
        assert_eq!(describe(&tls).unwrap(), "http: requests on 32 permanent connections; TLS");
    }

    #[test]
    fn connections_of_candidates_are_among_those_that_are_described() {
        let candidates = [64, 8].map(|own| Candidate { connections: Some(own), ..Candidate::default() });
        let of = |kind| Experiment {
            workload: Workload::of(kind),
            candidates: candidates.to_vec(),
            ..Experiment::default()
        };
        assert_eq!(connections(&of(WorkloadKind::Http)), (8, 64));
        let grpc = describe(&of(WorkloadKind::Grpc)).unwrap();
        assert_eq!(grpc, "grpc: echo calls on 8 to 64 permanent connections of HTTP/2");
        let connect = describe(&of(WorkloadKind::Connect)).unwrap();
        assert!(connect.contains("each request, 8 to 64 at a time"), "{connect}");
    }

    #[test]
    fn loss_is_never_rounded_to_nothing() {
        let of = |share| loss(&TransferRates { loss: Some(share), ..TransferRates::default() }).unwrap();
        assert_eq!(
            (of(0.0), of(0.000_02), of(0.25)),
            ("0 %".to_owned(), "0.002 %".to_owned(), "25 %".to_owned())
        );
        assert_eq!((mbit(94.123), mbit(9_412.4)), ("94.1".to_owned(), "9412".to_owned()));
    }
}
