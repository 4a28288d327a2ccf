//! What a thread waits for: an epoll, the events that it reported last, and which socket each of them is for.
//!
//! The generator, downloads and the responder wait in this way. What they do between two waits differs, and is theirs:
//! the generator watches the clock, a download reads its connections in turn, the responder keeps its faults' timers.
//!
//! **Invariant: after [`Poller::new`] nothing here allocates.**

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

/// Events fetched at once.
pub(crate) const EVENTS: usize = 256;

/// The socket that an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tag {
    /// Where its owner keeps it.
    pub(crate) index: u32,
    /// Which of those that were kept there it is. Events of a socket that is closed may have been fetched already when
    /// another takes its place.
    pub(crate) generation: u32,
}

/// A socket with something to read, room to write, or an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    pub(crate) tag: Tag,
    pub(crate) flags: EventFlags,
}

#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// Not as the kernel wrote them: a thread may not hand those, which could be pointers, to another.
    ready: Vec<Ready>,
}

impl Tag {
    /// Of the next socket in the same place.
    #[must_use]
    pub(crate) fn next(self) -> Tag {
        Tag { generation: self.generation.wrapping_add(1), ..self }
    }

    fn data(self) -> EventData {
        EventData::new_u64(u64::from(self.generation) << 32 | u64::from(self.index))
    }
}

impl Ready {
    fn of(event: &epoll::Event) -> Ready {
        let data = { event.data }.u64();
        Ready { tag: Tag { index: data as u32, generation: (data >> 32) as u32 }, flags: event.flags }
    }
}

impl Poller {
    pub(crate) fn new() -> Result<Poller, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { epoll, ready: Vec::with_capacity(EVENTS) })
    }

    /// Watches a socket until it is closed.
    pub(crate) fn add(&self, socket: &impl AsFd, tag: Tag, interest: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, tag.data(), interest)
    }

    /// Watches a socket for something else.
    pub(crate) fn modify(&self, socket: &impl AsFd, tag: Tag, interest: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, tag.data(), interest)
    }

    /// Watches a socket no longer.
    pub(crate) fn delete(&self, socket: &impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, socket)
    }

    /// Fetches up to [`EVENTS`] events, and waits for the first at most for a time. Being interrupted by a signal is
    /// like no event.
    pub(crate) fn wait(&mut self, timeout_ns: u64) {
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (timeout_ns % 1_000_000_000).cast_signed(),
        };
        self.ready.clear();
        let mut events = [MaybeUninit::uninit(); EVENTS];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok((events, _)) => self.ready.extend(events.iter().map(Ready::of)),
            Err(Errno::INTR) => {}
            Err(errno) => panic!("an epoll of our own, a valid buffer and a valid timeout: {errno}"),
        }
    }

    /// Forgets the events of the last wait.
    pub(crate) fn clear(&mut self) {
        self.ready.clear();
    }

    /// How many events the last wait fetched.
    pub(crate) fn len(&self) -> usize {
        self.ready.len()
    }

    /// True if the last wait ended without an event.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// One of the events. By number and not by an iterator, which would keep its user from acting on them.
    pub(crate) fn ready(&self, event: usize) -> Ready {
        self.ready[event]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"x").unwrap();
        (ours, theirs)
    }

    #[test]
    fn an_event_carries_the_tag_of_its_socket() {
        let mut poller = Poller::new().unwrap();
        poller.wait(0);
        assert!(poller.is_empty());
        let tag = Tag { index: u32::MAX, generation: u32::MAX };
        let (ours, _theirs) = pair();
        poller.add(&ours, tag, EventFlags::IN).unwrap();
        poller.wait(u64::MAX);
        assert_eq!((poller.len(), poller.ready(0).tag, poller.ready(0).flags), (1, tag, EventFlags::IN));
        poller.modify(&ours, tag.next(), EventFlags::OUT).unwrap();
        poller.wait(u64::MAX);
        let next = Tag { index: u32::MAX, generation: 0 };
        assert_eq!((poller.ready(0).tag, poller.ready(0).flags), (next, EventFlags::OUT));
        poller.delete(&ours).unwrap();
        poller.wait(0);
        assert!(poller.is_empty());
    }

    /// Both are ready at once. The first event's user closes the second socket and opens another in its place: the
    /// event that was fetched for the old one must not reach it.
    #[test]
    fn an_event_of_a_closed_socket_is_not_its_successors() {
        let mut poller = Poller::new().unwrap();
        let place = Tag { index: 7, generation: 0 };
        let (old, _theirs) = pair();
        poller.add(&old, place, EventFlags::IN).unwrap();
        poller.wait(u64::MAX);
        drop(old);
        let (new, _peer) = pair();
        poller.add(&new, place.next(), EventFlags::IN).unwrap();
        assert_ne!(poller.ready(0).tag, place.next());
        poller.wait(u64::MAX);
        assert_eq!(poller.ready(0).tag, place.next());
    }
}
