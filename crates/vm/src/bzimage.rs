//! The kernel inside a `bzImage`: QEMU starts an uncompressed one about two emulated seconds faster.
//!
//! The image's header gives the offset of the compressed kernel (Linux, Documentation/arch/x86/boot.rst), so no search
//! is needed. Debian compresses it with zstd, and the cloud's 6.1 with LZ4. It is unpacked by decoders in Rust, since
//! not every machine has the programs or their libraries, and building the C libraries takes longer than building this
//! crate. What is compressed otherwise unpacks itself, as the 6.1 with all drivers does (XZ), and most kernels that
//! people build (gzip).

use std::io::Read;

use crate::lz4;

/// Set-up sectors before the protected-mode kernel; zero stands for four.
const SETUP_SECTS: usize = 0x1f1;
const MAGIC: usize = 0x202;
/// Where the offset of the version's text from 0x200 stands.
const VERSION_OFFSET: usize = 0x20e;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// Far above any kernel; a limit for damaged input.
const VMLINUX_BYTES_MAX: usize = 1 << 30;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Returns the ELF file inside the image, `None` if it is compressed in a way for which we have no decoder, or the
/// reason why it is no image.
pub(crate) fn vmlinux(image: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let payload = payload(image)?;
    let elf = if payload.starts_with(&ZSTD_MAGIC) {
        zstd(payload)?
    } else if payload.starts_with(&lz4::MAGIC) {
        lz4::unpack(payload, VMLINUX_BYTES_MAX)?
    } else {
        return Ok(None);
    };
    if elf.starts_with(b"\x7fELF") { Ok(Some(elf)) } else { Err("what it unpacks to is no ELF file".into()) }
}

/// The release that `uname -r` will print: a bzImage's header gives its offset, in an ELF file it follows a banner.
pub(crate) fn release(image: &[u8]) -> Result<String, String> {
    const BANNER: &[u8] = b"Linux version ";
    let text = if image.starts_with(b"\x7fELF") {
        let at = memchr::memmem::find(image, BANNER).ok_or("it does not say its version")?;
        &image[at + BANNER.len()..]
    } else {
        let field = image.get(VERSION_OFFSET..VERSION_OFFSET + 2).ok_or("its header is cut off")?;
        let at = usize::from(u16::from_le_bytes([field[0], field[1]])) + 0x200;
        image.get(at..).filter(|_| at > 0x200).ok_or("it does not say its version")?
    };
    let length = text.iter().take(128).take_while(|byte| byte.is_ascii_graphic()).count();
    match std::str::from_utf8(&text[..length]) {
        Ok(release) if !release.is_empty() => Ok(release.to_owned()),
        _ => Err("it does not say its version".into()),
    }
}

/// The length of the unpacked kernel follows the frame; the decoder stops at the frame's end.
fn zstd(payload: &[u8]) -> Result<Vec<u8>, String> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(payload).map_err(|error| error.to_string())?;
    let mut elf = Vec::new();
    decoder.take(VMLINUX_BYTES_MAX as u64).read_to_end(&mut elf).map_err(|error| error.to_string())?;
    Ok(elf)
}

fn payload(image: &[u8]) -> Result<&[u8], String> {
    if image.get(MAGIC..MAGIC + 4) != Some(b"HdrS") {
        return Err("it has no boot header".into());
    }
    let setup = match image[SETUP_SECTS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let field = |at: usize| {
        let bytes = image.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(|bytes| u32::from_le_bytes(bytes) as usize).ok_or("its header is cut off")
    };
    let start = (setup + 1) * 512 + field(PAYLOAD_OFFSET)?;
    let end = start + field(PAYLOAD_LENGTH)?;
    image.get(start..end).ok_or_else(|| format!("its payload would lie at {start}..{end}, beyond its end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zstd frame with one raw block.
    fn frame(content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, length, (length << 3) | 1, 0, 0];
        frame.extend(content);
        frame
    }

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[SETUP_SECTS] = 1;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET] = 16;
        image[PAYLOAD_LENGTH] = u8::try_from(payload.len()).unwrap();
        image.extend([0; 16]);
        image.extend(payload);
        image
    }

    #[test]
    fn elf_is_taken_out() {
        let mut payload = frame(b"\x7fELFrest");
        payload.extend(8_u32.to_le_bytes());
        assert_eq!(vmlinux(&image(&payload)).unwrap().unwrap(), b"\x7fELFrest");
    }

    #[test]
    fn elf_is_taken_out_of_lz4() {
        let mut payload = lz4::MAGIC.to_vec();
        payload.extend([9, 0, 0, 0, 0x80]);
        payload.extend(b"\x7fELFrest");
        payload.extend(8_u32.to_le_bytes());
        assert_eq!(vmlinux(&image(&payload)).unwrap().unwrap(), b"\x7fELFrest");
    }

    #[test]
    fn release_is_read_from_header_and_banner() {
        let mut bytes = image(&frame(b"\x7fELFrest"));
        assert!(release(&bytes).is_err());
        let at = bytes.len();
        bytes.extend(b"6.9.3-mine (me@here) #1 SMP\0");
        let offset = u16::try_from(at - 0x200).unwrap().to_le_bytes();
        bytes[VERSION_OFFSET..VERSION_OFFSET + 2].copy_from_slice(&offset);
        assert_eq!(release(&bytes).unwrap(), "6.9.3-mine");
        assert_eq!(release(b"\x7fELF..Linux version 6.1.0-x y").unwrap(), "6.1.0-x");
        assert!(release(b"\x7fELF").is_err() && release(b"x").is_err());
    }

    #[test]
    fn what_has_no_decoder_is_left_to_the_kernel() {
        for payload in [b"\xfd7zXZ\0", &b"\x1f\x8b\x08\x00"[..], b"BZh91AY", b"\x5d\0\0\0", b"\x89LZO\0"] {
            assert_eq!(vmlinux(&image(payload)).unwrap(), None);
        }
    }

    #[track_caller]
    fn check_refused(image: &[u8], reason: &str) {
        let found = vmlinux(image).unwrap_err();
        assert!(found.contains(reason), "{found}");
    }

    #[test]
    fn damage_is_named() {
        check_refused(b"short", "no boot header");
        check_refused(&image(&frame(b"text")), "no ELF file");
        let whole = image(&frame(b"\x7fELFrest"));
        check_refused(&whole[..whole.len() - 1], "beyond its end");
        check_refused(&whole[..0x24a], "cut off");
    }
}
