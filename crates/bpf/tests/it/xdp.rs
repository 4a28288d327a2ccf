//! XDP as a hook: frames meet a pinned program in the mode that it was attached in, and no longer than that.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bpf::{Attached, Hook, XdpMode, pins};
use linux::{IfName, Netlink};
use testkit::{Wire, World, require_root};

use crate::pinned::pin;
use crate::preamble::{ADD, EXIT, SET, instruction, load_code};

const FAR: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 2), 4000);
/// Frames that are longer are dropped.
const LONGEST: i32 = 500;
const LOAD_WORD: u8 = 0x61;
const JUMP_IF_GREATER: u8 = 0x2d;
const DROP: i32 = 1;
const PASS: i32 = 2;

/// `data + LONGEST > data_end ? PASS : DROP`, pinned.
fn pin_program(folder: &Path) -> PathBuf {
    let code = [
        instruction(LOAD_WORD, (2, 1), 0, 0),
        instruction(LOAD_WORD, (3, 1), 4, 0),
        instruction(ADD, (2, 0), 0, LONGEST),
        instruction(SET, (0, 0), 0, PASS),
        instruction(JUMP_IF_GREATER, (2, 3), 1, 0),
        instruction(SET, (0, 0), 0, DROP),
        instruction(EXIT, (0, 0), 0, 0),
    ];
    let program = load_code(libbpf_sys::BPF_PROG_TYPE_XDP, c"drop_long", &code);
    let place = folder.join("drop_long");
    pin(&program, &place);
    place
}

#[test]
fn frames_meet_a_program_of_either_mode_until_it_is_detached() {
    if !require_root() {
        return;
    }
    let (wire, world) = (Wire::up(), World::new());
    let folder = pins::folder(world.name("xdp").as_str());
    pins::make(&folder).unwrap();
    let (program, place) = (pin_program(&folder), folder.join("link_b0"));
    let index = wire.far.run(|| Netlink::open().unwrap().index_of(&IfName::new("b0").unwrap()).unwrap());
    let index = index.unwrap();
    let met = |mode| wire.far.run(|| bpf::met(&program, Hook::Xdp(mode), index)).unwrap().unwrap();
    let receiver = wire.far.run(|| UdpSocket::bind(FAR)).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let sender = wire.near.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let send = |bytes: usize| assert_eq!(sender.send_to(&vec![0; bytes], FAR).unwrap(), bytes);
    let received = || receiver.recv(&mut [0; 2000]).unwrap();
    for (mode, other) in [(XdpMode::Native, XdpMode::Generic), (XdpMode::Generic, XdpMode::Native)] {
        let attach = |mode, place: &Path| bpf::attach(&program, Hook::Xdp(mode), index, place);
        let attached = wire.far.run(|| attach(mode, &place)).unwrap().unwrap();
        assert_eq!((attached, met(mode), met(other)), (Attached::Link, Some(0), None), "{mode:?}");
        for second in [mode, other] {
            let error =
                wire.far.run(|| attach(second, &folder.join("second"))).unwrap().unwrap_err().to_string();
            assert!(error.starts_with(&format!("attach a program to link {index}: ")), "{error}");
        }
        send(1000);
        send(10);
        assert_eq!(received(), 10, "{mode:?}: the long one was dropped");
        drop(wire.far.run(|| bpf::detach(attached, index, &place, false)).unwrap().unwrap());
        assert_eq!((met(mode), met(other)), (None, None), "{mode:?}");
        send(1000);
        assert_eq!(received(), 1000, "{mode:?}: no program is there any more");
    }
}
