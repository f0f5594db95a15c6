package scala;

public abstract class Option<A> {
    public abstract boolean isDefined();

    public abstract A get();
}
