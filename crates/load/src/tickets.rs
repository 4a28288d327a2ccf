//! The TLS sessions that a server has offered to resume.
//!
//! rustls's own store keeps eight tickets for a server, and a ticket of TLS 1.3 is used once: where many connections
//! begin at the same time, most of them would find none.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Tickets kept at most; the oldest is dropped first. There are as many as connections that begin at the same time,
/// and servers send one or two for each.
const TICKETS_MAX: usize = 32_768;

/// The tickets of one server, because a [`crate::Tls`] serves one.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Tickets {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _server: ServerName<'static>, group: NamedGroup) {
        self.kept().group = Some(group);
    }

    fn kx_hint(&self, _server: &ServerName<'_>) -> Option<NamedGroup> {
        self.kept().group
    }

    fn set_tls12_session(&self, _server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.kept().session = Some(session);
    }

    fn tls12_session(&self, _server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.kept().session.clone()
    }

    fn remove_tls12_session(&self, _server: &ServerName<'static>) {
        self.kept().session = None;
    }

    fn insert_tls13_ticket(&self, _server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let tickets = &mut self.kept().tickets;
        if tickets.len() >= TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    /// The newest, which is the last to expire.
    fn take_tls13_ticket(&self, _server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept().tickets.pop_back()
    }
}
