//! A program that gives a packet the metadata that a link would add, and then calls the program under test. A
//! test run cannot set this metadata.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

/// The size of `struct bpf_tunnel_key` since Linux 5.19, and the offset of the near end. What one program
/// sets as the near end, the next reads as the far end: one describes a packet that leaves, the other a
/// packet that arrived.
const KEY: i32 = 44;
const NEAR_END: i32 = 28;
/// `BPF_F_TUNINFO_IPV6`: the tunnel's outer addresses are of IPv6.
const OVER_IPV6: i32 = 1;
/// The preamble returns this if the tail call failed. It is none of our verdicts.
const STUCK: i32 = 99;

/// One instruction: its code, destination and source registers, offset and immediate (RFC 9669, section 3).
pub(crate) fn instruction(code: u8, registers: (u8, u8), offset: i16, number: i32) -> [u8; 8] {
    let (destination, source) = registers;
    let mut bytes = [code, source << 4 | destination, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// The metadata that a link adds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    /// From a tunnel device: the network's identifier and the sender.
    Tunnel { vni: u32, from: IpAddr },
    /// From any link: the VLAN tag that was taken out of the bytes.
    Vlan(u16),
}

const MOVE: u8 = 0xbf;
pub(crate) const SET: u8 = 0xb7;
pub(crate) const ADD: u8 = 0x07;
const CALL: u8 = 0x85;
const STORE: u8 = 0x62;
const WIDE: u8 = 0x18;
pub(crate) const EXIT: u8 = 0x95;

/// `give(skb, …); tail_call(skb, programs, 0); return STUCK;`
fn code(given: Given, programs: BorrowedFd<'_>) -> Vec<[u8; 8]> {
    let mut code = vec![instruction(MOVE, (6, 1), 0, 0)];
    code.extend(match given {
        Given::Tunnel { vni, from } => set_tunnel_key(vni, from),
        Given::Vlan(tag) => vec![
            instruction(SET, (2, 0), 0, crate::frame::VLAN.to_be().into()),
            instruction(SET, (3, 0), 0, tag.into()),
            instruction(CALL, (0, 0), 0, 18), // bpf_skb_vlan_push
        ],
    });
    code.extend([
        instruction(MOVE, (1, 6), 0, 0),
        instruction(WIDE, (2, 1), 0, programs.as_raw_fd()),
        instruction(0, (0, 0), 0, 0),
        instruction(SET, (3, 0), 0, 0),
        instruction(CALL, (0, 0), 0, 12), // bpf_tail_call
        instruction(SET, (0, 0), 0, STUCK),
        instruction(EXIT, (0, 0), 0, 0),
    ]);
    code
}

fn set_tunnel_key(vni: u32, from: IpAddr) -> Vec<[u8; 8]> {
    let i16_of = |bytes: i32| i16::try_from(bytes).expect("a small frame");
    // The helpers expect IPv4 addresses in host order and IPv6 addresses in network order.
    let (flags, end) = match from {
        IpAddr::V4(v4) => (0, vec![v4.to_bits().cast_signed()]),
        IpAddr::V6(v6) => {
            let words = v6.octets();
            let words = words.chunks_exact(4).map(|word| i32::from_ne_bytes(word.try_into().expect("four")));
            (OVER_IPV6, words.collect())
        }
    };
    let mut key = [0; KEY as usize / 4];
    key[0] = vni.cast_signed();
    key[NEAR_END as usize / 4..][..end.len()].copy_from_slice(&end);
    let mut code = Vec::new();
    for (at, word) in (-KEY..0).step_by(4).zip(key) {
        code.push(instruction(STORE, (10, 0), i16_of(at), word));
    }
    code.extend([
        instruction(MOVE, (2, 10), 0, 0),
        instruction(ADD, (2, 0), 0, -KEY),
        instruction(SET, (3, 0), 0, KEY),
        instruction(SET, (4, 0), 0, flags),
        instruction(CALL, (0, 0), 0, 21), // bpf_skb_set_tunnel_key
    ]);
    code
}

/// The preamble of a program, and the map that it calls through.
pub(crate) struct Preamble {
    pub(crate) program: OwnedFd,
    _programs: MapHandle,
}

pub(crate) fn load(next: BorrowedFd<'_>, given: Given) -> Preamble {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let programs = MapHandle::create(MapType::ProgArray, Some("next"), 4, 4, 1, &options);
    let programs = programs.expect("root can make a map");
    let value = next.as_raw_fd().to_ne_bytes();
    programs.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY).expect("programs of one kind fit");
    let code = code(given, programs.as_fd());
    let program = load_code(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, c"preamble", &code);
    Preamble { program, _programs: programs }
}

/// Loads a program of these instructions.
pub(crate) fn load_code(kind: libbpf_sys::bpf_prog_type, name: &CStr, code: &[[u8; 8]]) -> OwnedFd {
    // SAFETY: the strings end with a zero, the instruction count is right, and all of them outlive the call.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            c"Dual BSD/GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as u64,
            ptr::null_mut(),
        )
    };
    assert!(program >= 0, "{name:?}: {}", io::Error::from_raw_os_error(-program));
    // SAFETY: the descriptor was just made and has no other owner.
    unsafe { OwnedFd::from_raw_fd(program) }
}
