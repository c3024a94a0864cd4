fn main() {
    println!("{}", shop::answer());
}
