//! Requests and responses over UDP. There are no connections: each datagram is answered by one to its sender.

use std::net::SocketAddr;

use linux::clock;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::injector::{Datagram, Fate};
use super::responder::Responder;

/// Datagrams that are answered before others are served.
const BATCH: usize = 64;

impl Responder<'_> {
    /// Answers what came in on a listener.
    pub(super) fn on_datagrams(&mut self, listener: usize) {
        for _ in 0..BATCH {
            // The kernel drops the part that does not fit, which is not needed.
            let mut head = [0; 8];
            let received =
                rustix::net::recvfrom(&self.listeners[listener].socket, &mut head[..], RecvFlags::TRUNC);
            match received {
                // With TRUNC the second value is the datagram's length, even if it exceeds the buffer.
                Ok((head_bytes, length, Some(to))) => {
                    let Ok(to) = SocketAddr::try_from(to) else { continue };
                    let answer_bytes = self.raw.map_or(length, |raw| raw.response_bytes as usize);
                    self.on_datagram(Datagram { listener, to, head, head_bytes, answer_bytes });
                }
                Err(Errno::AGAIN) => return,
                // Not a datagram, but the error of an earlier one that was sent (udp(7)).
                Ok((_, _, None)) | Err(_) => {}
            }
        }
    }

    fn on_datagram(&mut self, datagram: Datagram) {
        if let Some(work) = &mut self.work {
            work.one();
        }
        let Some(injector) = &mut self.injector else { return self.send_datagram(&datagram) };
        let now_ns = clock::now_ns();
        match injector.draw(now_ns) {
            (Fate::Half(_), _) => {}
            (Fate::Answer | Fate::Error, due_ns) if due_ns <= now_ns => self.send_datagram(&datagram),
            (Fate::Answer | Fate::Error, due_ns) => {
                self.served.dropped += u64::from(!injector.hold_datagram(due_ns, datagram));
            }
        }
    }

    pub(super) fn send_datagram(&mut self, datagram: &Datagram) {
        let answer_bytes = self.datagram.len().min(datagram.answer_bytes);
        let head_bytes = answer_bytes.min(datagram.head_bytes);
        self.datagram[..head_bytes].copy_from_slice(&datagram.head[..head_bytes]);
        let socket = &self.listeners[datagram.listener].socket;
        match rustix::net::sendto(socket, &self.datagram[..answer_bytes], SendFlags::empty(), &datagram.to) {
            Ok(_) => self.served.answered += 1,
            Err(_) => self.served.dropped += 1,
        }
    }
}
