//! Frames of a switch in user space, by vhost-user: the switch copies them into memory of this process, and out of it.
//!
//! This process has the socket, and the switch connects to it, now or later, and again after it was started anew
//! (`dpdkvhostuserclient` of Open vSwitch). Until then there is nothing to receive. In the words of the protocol this
//! is the frontend, which has the memory and the driver's side of the rings.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use linux::vring::{ENTRIES, SharedRings, VERSION_1};
use vhost::vhost_user::Frontend;
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::super::error::{ServeError, system};
use super::super::listener::{SocketFile, bind_unix};
use super::port::Port;

/// What wakes a port that sleeps.
const LISTENER: u64 = 0;
const SWITCH: u64 = 1;
const CALL: u64 = 2;
const TAKEN: u64 = 3;
/// For how long a switch may be silent when it is asked what it can do. What connects and says nothing is none. One
/// that is starved by others on a busy machine calls again, and would be no faster then.
pub const SWITCH_PATIENCE: Duration = Duration::from_secs(20);
/// The rings of a network device with one queue.
const RINGS: u64 = 2;

/// A port of a switch. Its socket's file is removed with it.
pub(in super::super) struct VhostUserPort {
    listener: UnixListener,
    _file: SocketFile,
    mac: [u8; 6],
    switch: Option<Switch>,
    rings: SharedRings,
    /// By which the switch says that it has written frames.
    call: EventFd,
    /// By which it is told that there are frames, and by which it says that it has taken some.
    kicks: [EventFd; 2],
    taken: EventFd,
    wakes: Epoll,
}

/// The switch that has the rings now.
struct Switch {
    stream: UnixStream,
    /// Ends the connection when it is dropped.
    _frontend: Frontend,
}

impl VhostUserPort {
    /// Has the socket at a path. The Ethernet address is made of the first of the addresses, as the CNI project's
    /// plugins make it (`0a:58` and four bytes of the address).
    pub(super) fn open(socket: &Path, addresses: &[IpAddr]) -> Result<VhostUserPort, ServeError> {
        let bound = bind_unix(socket).and_then(|bound| Ok((bound, SocketFile::at(socket)?)));
        let (bound, file) = bound.map_err(|why| {
            let attempted = format!("listen on {} (vhost-user)", socket.display());
            linux::Error::new(attempted, why)
        })?;
        let event = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).map_err(system("make an eventfd"));
        let port = VhostUserPort {
            listener: bound.into(),
            _file: file,
            mac: mac(addresses),
            switch: None,
            rings: SharedRings::new()?,
            call: event()?,
            kicks: [event()?, event()?],
            taken: event()?,
            wakes: Epoll::new().map_err(system("make an epoll"))?,
        };
        port.watch(port.listener.as_raw_fd(), LISTENER)?;
        port.watch(port.call.as_raw_fd(), CALL)?;
        port.watch(port.taken.as_raw_fd(), TAKEN)?;
        Ok(port)
    }

    fn watch(&self, descriptor: RawFd, which: u64) -> Result<(), ServeError> {
        let wanted = EpollEvent::new(EventSet::IN, which);
        self.wakes.ctl(ControlOperation::Add, descriptor, wanted).map_err(system("watch a descriptor"))
    }

    /// Sleeps until something happens, for so many milliseconds at most, and does what follows from it.
    fn sleep(&mut self, limit_ms: i32) -> Result<(), ServeError> {
        let mut events = [EpollEvent::default(); 4];
        let count = match self.wakes.wait(limit_ms, &mut events) {
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            count => count.map_err(system("wait for frames (vhost-user)"))?,
        };
        let is_there = |which| events[..count].iter().any(|event| event.data() == which);
        for (event, which) in [(&self.call, CALL), (&self.taken, TAKEN)] {
            if is_there(which) {
                // How often it was called does not matter.
                let _ = event.read();
            }
        }
        // A switch that was started anew calls when the old one has gone.
        if is_there(SWITCH) {
            self.part();
        }
        if is_there(LISTENER) { self.accept() } else { Ok(()) }
    }

    /// Lets go of a switch that has ended, or speaks without being asked.
    fn part(&mut self) {
        // It is no longer watched with its last descriptor.
        let Some(Switch { stream, .. }) = self.switch.take() else { return };
        let unwatched = EpollEvent::default();
        // One that is gone already is what is wanted.
        let _ = self.wakes.ctl(ControlOperation::Delete, stream.as_raw_fd(), unwatched);
    }

    /// Gives the rings to a switch that calls. A second one at the same time is sent away, and so is what is no switch.
    fn accept(&mut self) -> Result<(), ServeError> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            // It has gone again.
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::ConnectionAborted].contains(&error.kind()) => {
                return Ok(());
            }
            Err(why) => return Err(system("accept a switch (vhost-user)")(why)),
        };
        if self.switch.is_some() {
            return Ok(());
        }
        // The one before may have kept its memory, and would read the frames of this one.
        self.rings = SharedRings::new()?;
        let Ok(frontend) = self.agree_soon(&stream) else { return Ok(()) };
        self.watch(stream.as_raw_fd(), SWITCH)?;
        self.switch = Some(Switch { stream, _frontend: frontend });
        Ok(())
    }

    /// Agrees with a switch, or ends the connection when it has not answered in time. No limit of the socket does that,
    /// since the crate tries a read that timed out again.
    fn agree_soon(&self, stream: &UnixStream) -> io::Result<Frontend> {
        let (own, watched) = (stream.try_clone()?, stream.try_clone()?);
        let (agreed, hears) = mpsc::channel::<()>();
        thread::scope(|scope| {
            thread::Builder::new().spawn_scoped(scope, move || {
                if hears.recv_timeout(SWITCH_PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    // One that has gone already is what is wanted.
                    let _ = watched.shutdown(Shutdown::Both);
                }
            })?;
            let frontend = self.agree(own);
            drop(agreed);
            frontend
        })
    }

    /// Tells a switch where the memory is, and the rings in it. Their addresses are those of this process.
    fn agree(&self, stream: UnixStream) -> io::Result<Frontend> {
        let refused = |error: vhost::Error| io::Error::other(error.to_string());
        let frontend = Frontend::from_stream(stream, RINGS);
        frontend.set_owner().map_err(refused)?;
        if frontend.get_features().map_err(refused)? & VERSION_1 == 0 {
            return Err(io::Error::other("it is older than virtio 1"));
        }
        // Nothing else: no checksums are left to it or it to us, and its queue is on from the beginning.
        frontend.set_features(VERSION_1).map_err(refused)?;
        let memory = VhostUserMemoryRegionInfo {
            guest_phys_addr: self.rings.address(),
            memory_size: self.rings.bytes(),
            userspace_addr: self.rings.address(),
            mmap_offset: 0,
            mmap_handle: self.rings.as_fd().as_raw_fd(),
        };
        frontend.set_mem_table(&[memory]).map_err(refused)?;
        let calls = [&self.call, &self.taken];
        for (index, ((at, kick), call)) in self.rings.queues().iter().zip(&self.kicks).zip(calls).enumerate()
        {
            let places = VringConfigData {
                queue_max_size: ENTRIES,
                queue_size: ENTRIES,
                flags: 0,
                desc_table_addr: at.table,
                used_ring_addr: at.used,
                avail_ring_addr: at.offered,
                log_addr: None,
            };
            frontend.set_vring_num(index, ENTRIES).map_err(refused)?;
            frontend.set_vring_base(index, 0).map_err(refused)?;
            frontend.set_vring_addr(index, &places).map_err(refused)?;
            frontend.set_vring_kick(index, kick).map_err(refused)?;
            frontend.set_vring_call(index, call).map_err(refused)?;
        }
        Ok(frontend)
    }
}

impl Port for VhostUserPort {
    fn mac(&self) -> Option<[u8; 6]> {
        Some(self.mac)
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        self.rings.receive(frame)
    }

    fn can_send(&mut self) -> bool {
        self.rings.can_send()
    }

    fn send(&mut self, bytes: usize, write: &mut dyn FnMut(&mut [u8])) {
        let sent = self.rings.send(bytes, write);
        assert!(sent, "the caller has asked for room");
    }

    fn flush(&mut self) -> Result<(), ServeError> {
        if self.rings.publish() {
            // A full counter says as much.
            let _ = self.kicks[1].write(1);
        }
        Ok(())
    }

    fn wait(&mut self, limit_ns: u64) -> Result<(), ServeError> {
        let can_send = self.rings.can_send();
        if can_send && self.rings.has_received() {
            return Ok(());
        }
        if limit_ns == 0 {
            // The switch's thread that polls may be on this CPU.
            rustix::thread::sched_yield();
            return Ok(());
        }
        let limit_ms = i32::try_from(limit_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // No frame is taken while none can leave, so then it is room that is waited for.
        let is_ready = if can_send {
            self.rings.want_calls(true);
            self.rings.has_received()
        } else {
            self.rings.want_room(true);
            self.rings.can_send()
        };
        let slept = self.sleep(if is_ready { 0 } else { limit_ms });
        self.rings.want_calls(false);
        self.rings.want_room(false);
        slept
    }
}

/// Locally administered, and different for addresses that differ in their last four bytes.
fn mac(addresses: &[IpAddr]) -> [u8; 6] {
    let [a, b, c, d] = match addresses.first() {
        Some(IpAddr::V4(v4)) => v4.octets(),
        Some(IpAddr::V6(v6)) => v6.octets().last_chunk().copied().expect("an address has sixteen bytes"),
        None => [0; 4],
    };
    [0x0a, 0x58, a, b, c, d]
}
