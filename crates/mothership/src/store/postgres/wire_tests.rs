use super::*;
use proptest::prelude::*;

fn described() -> Vec<u8> {
    let mut output = Output::default();
    output.message(b'T', |body| {
        body.int2(1);
        body.string("id");
        body.int4(0);
        body.int2(0);
        body.int4(BYTES);
        body.int2(-1);
        body.int4(-1);
        body.int2(1);
    });
    output.take()
}

#[test]
fn a_message_is_taken_when_all_of_it_is_there() {
    let whole = described();
    for cut in 0..whole.len() {
        let mut input = whole[..cut].to_vec();
        assert_eq!(first(&mut input), Ok(None), "{cut}");
        assert_eq!(input.len(), cut, "nothing is lost");
    }
    let mut input = [whole.clone(), vec![b'Z', 0]].concat();
    let message = first(&mut input).unwrap().unwrap();
    assert_eq!((message.kind, input.as_slice()), (b'T', [b'Z', 0].as_slice()));
    assert_eq!(columns(&message.body), Some(vec![Column { name: "id".into(), kind: BYTES }]));
    for length in [0, 3, -1, i32::MIN, i32::MAX] {
        let mut input = [vec![b'D'], i32::to_be_bytes(length).to_vec()].concat();
        assert!(first(&mut input).is_err(), "{length}");
    }
}

#[test]
fn a_row_holds_its_values_and_a_command_its_count() {
    let row = [&[0, 3][..], &[0, 0, 0, 1, 7], &[255; 4], &[0, 0, 0, 0]].concat();
    assert_eq!(cells(&row), Some(vec![Some((6, 7)), None, Some((15, 15))]));
    assert_eq!(cells(&row[..row.len() - 1]), None, "a cut row is no row");
    assert_eq!([changed(b"INSERT 0 3\0"), changed(b"UPDATE 12\0"), changed(b"BEGIN\0")], [3, 12, 0]);
    let found = fault(b"SERROR\0C40P01\0Mdeadlock detected\0\0");
    assert_eq!((found.code.as_str(), found.message.as_str()), ("40P01", "deadlock detected"));
}

proptest! {
    #[test]
    fn no_bytes_of_a_server_make_a_reader_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop((columns(&bytes), cells(&bytes), fault(&bytes), changed(&bytes)));
        let mut input = bytes;
        while let Ok(Some(_)) = first(&mut input) {}
    }

    #[test]
    fn every_cell_lies_in_its_row(bytes in proptest::collection::vec(0_u8..6, 0..60)) {
        for (start, end) in cells(&bytes).into_iter().flatten().flatten() {
            prop_assert!(start <= end && end <= bytes.len());
        }
    }
}
