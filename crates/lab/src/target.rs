//! What a client asks of a server, for a workload.

use std::net::SocketAddr;

use load::{Address, Ask, Expect, HttpRequest, Sessions, Sizes, Target, Tls, Trust};
use record::{HttpVersion, WorkloadKind};

use crate::server::Secret;

/// How a client speaks TLS with a server of a workload.
pub(crate) fn tls(secret: &Secret, workload: &record::Workload) -> Result<Tls, load::LoadError> {
    let sessions = if workload.reuses_sessions() { Sessions::Resumed } else { Sessions::Forgotten };
    Ok(Tls::new("localhost", Trust::File(&secret.chain))?.with_sessions(sessions))
}

/// What is asked for a size.
pub(crate) fn target(
    workload: &record::Workload,
    address: SocketAddr,
    body_bytes: u32,
    tls: Option<Tls>,
) -> Target {
    let request = || {
        let expect = Expect { status: 200, body_bytes: Some(body_bytes.into()) };
        let version = match workload.http_version() {
            HttpVersion::Http10 => load::HttpVersion::Http10,
            HttpVersion::Http11 => load::HttpVersion::Http11,
        };
        HttpRequest { version, ..HttpRequest::get(&address.to_string(), &format!("/{body_bytes}"), expect) }
    };
    let http = |request| (Address::Tcp(address), Ask::Http(vec![request]));
    let sizes = Ask::Raw(Sizes { request_bytes: body_bytes, response_bytes: body_bytes });
    let (address, ask) = match workload.kind {
        WorkloadKind::Http => http(request()),
        WorkloadKind::Connect | WorkloadKind::Download => http(request().closing()),
        WorkloadKind::Grpc => (Address::Tcp(address), Ask::Grpc { body_bytes }),
        WorkloadKind::TcpRr | WorkloadKind::Verbs | WorkloadKind::TcpStream => (Address::Tcp(address), sizes),
        WorkloadKind::UdpRr | WorkloadKind::UdpStream | WorkloadKind::Packets => {
            (Address::Udp(address), sizes)
        }
    };
    Target { address, tls, ask }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(workload: &record::Workload) -> HttpRequest {
        let target = target(workload, ([127, 0, 0, 1], 80).into(), 100, None);
        let Ask::Http(mut requests) = target.ask else { panic!("{target:?}") };
        assert_eq!((requests.len(), requests[0].path.as_str()), (1, "/100"));
        requests.remove(0)
    }

    #[test]
    fn a_request_ends_its_connection_as_its_kind_and_version_have_it() {
        let closing = |fields: &[(String, String)]| fields.iter().any(|(name, _)| name == "Connection");
        let stays = request(&record::Workload::of(WorkloadKind::Http));
        assert!(stays.version == load::HttpVersion::Http11 && !closing(&stays.fields));
        for kind in [WorkloadKind::Connect, WorkloadKind::Download] {
            let built = request(&record::Workload::of(kind));
            assert!(built.version == load::HttpVersion::Http11 && closing(&built.fields));
            let http = Some(HttpVersion::Http10);
            let unasked = request(&record::Workload { http, ..record::Workload::of(kind) });
            assert!(unasked.version == load::HttpVersion::Http10 && !closing(&unasked.fields));
        }
    }
}
